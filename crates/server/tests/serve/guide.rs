//! The guide's own files and program, as they stand in it.

use std::path::Path;
use std::process::{Command, Stdio};

use twobox_testkit::eventually;

use crate::world::{EVER, Node};

const GUIDE: &str = include_str!("../../../../docs/SERVER.md");

/// The code block that begins with this comment.
fn block(title: &str) -> &'static str {
    let start = GUIDE.find(&format!("\n# {title}\n")).unwrap();
    GUIDE[start..].split("\n```").next().unwrap()
}

fn write(folder: &Path, name: &str, ports: [(&str, u16); 2]) -> std::path::PathBuf {
    let here = |file: &str| folder.join(file).to_str().unwrap().to_owned();
    let mut text = block(name).to_owned();
    for file in ["shop-1.key", "shop.db", "billing.db"] {
        text = text.replace(&format!("\"{file}\""), &format!("{:?}", here(file)));
    }
    for (documented, port) in ports {
        assert!(GUIDE.contains(documented));
        text = text.replace(documented, &port.to_string());
    }
    std::fs::write(folder.join(name), text).unwrap();
    folder.join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_24_the_guide_leads_to_two_nodes() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("shop-1.key"), "a secret that is long enough for anybody\n").unwrap();
    std::fs::set_permissions(folder.join("shop-1.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let program = write(folder, "handler.py", [("8080", free), ("7400", 0)]);
    let output = std::fs::File::create(folder.join("output")).unwrap();
    let mut program =
        Command::new("python3").arg(program).stdout(output).stderr(Stdio::null()).spawn().unwrap();

    let billing = Node::start(&write(folder, "billing.toml", [("8080", free), ("7400", 0)])).await;
    let port = billing.listen().port();
    let shop = Node::start(&write(folder, "shop.toml", [("8080", free), ("7400", port)])).await;
    let insert = twobox::rusqlite::Connection::open(folder.join("shop.db")).unwrap();
    let statement = GUIDE.split("\"\"\"").nth(1).unwrap().replace("\n> ", "\n");
    insert.execute(&statement, []).unwrap();
    let said = eventually("the program has it", EVER, async || {
        std::fs::read_to_string(folder.join("output")).ok().filter(|said| said.ends_with('\n'))
    })
    .await;
    program.kill().unwrap();
    program.wait().unwrap();
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!((words[0], words[2], words[3]), ("/OrderPlaced", "{\"order\":", "7}"), "{said}");
    shop.stop().await;
    billing.stop().await;
}
