//! The examples of docs/CLI.md, run in their order.

use crate::world::World;

const GUIDE: &str = include_str!("../../../../docs/CLI.md");

/// A text without what differs from run to run: numbers, ids and times.
fn masked(text: &str) -> Vec<String> {
    let units = ["ms", "s", "min", "h"];
    let words = text.split_whitespace().filter(|word| !units.contains(word));
    let mask =
        |word: &str| if word.contains(|c: char| c.is_ascii_digit()) { "#".into() } else { word.to_owned() };
    words.map(mask).collect()
}

/// The arguments of a command line; quotes hold together what is between them.
fn arguments(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    parts
        .flat_map(|(at, part)| -> Vec<String> {
            let quoted = at % 2 == 1;
            if quoted { vec![part.into()] } else { part.split_whitespace().map(Into::into).collect() }
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_the_guide_shows_what_commands_print() {
    let world = World::new().await;
    let blocks = GUIDE.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let (mut examples, mut wrong) = (0, String::new());
    for example in blocks.flat_map(|block| block.split("$ twobox ").skip(1)) {
        let (line, shown) = example.split_once('\n').unwrap();
        let ran = world.run(arguments(line));
        if masked(&ran.out) != masked(shown) {
            wrong.push_str(&format!("$ twobox {line}\n{}{}", ran.out, ran.err));
        }
        examples += 1;
    }
    assert!(wrong.is_empty(), "these print something else:\n{wrong}");
    assert!(examples > 10, "{examples}");
}
