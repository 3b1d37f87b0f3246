//! Opening files: never made, never changed by accident; and what is made on purpose.

use twobox::rusqlite::Connection;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_a_file_is_neither_made_nor_migrated_by_accident() {
    let world = World::new().await;
    let missing = world.run(["status", "--database", "typo.db"]).ended(2);
    assert!(missing.err.contains("there is no file typo.db"), "{missing:?}");
    world.run(["migrate", "--database", "typo.db"]).ended(2);
    assert!(!world.path("typo.db").exists());
    std::fs::write(world.path("text.db"), "").unwrap();
    let text = world.run(["outbox", "list", "--database", "text.db"]).ended(2);
    assert!(text.err.contains("text.db is no SQLite database"), "{text:?}");
    assert_eq!(std::fs::metadata(world.path("text.db")).unwrap().len(), 0);
    let own = Connection::open(world.path("own.db")).unwrap();
    own.execute_batch("CREATE TABLE orders (id INTEGER)").unwrap();
    for command in ["status", "audit", "lanes"] {
        let refused = world.run([command, "--database", "own.db"]).ended(2);
        assert!(refused.err.contains("twobox migrate"), "{refused:?}");
    }
    let tables: i64 = own.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
    // The boxes of a prefix are others.
    world.run(["status", "--prefix", "other_"]).ended(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_tables_are_made_on_purpose_or_printed() {
    let world = World::new().await;
    let migrate = |arguments: &[&str]| world.run(["migrate"].iter().chain(arguments));
    let file = ["--database", "new.db", "--prefix", "a_"];
    let made = migrate(&[&file[..], &["--create"]].concat()).ended(0).out;
    assert_eq!(made, "new.db has the tables of this version now\n");
    let again = migrate(&file).ended(0).out;
    assert_eq!(again, "new.db has the tables of this version already\n");
    world.run(["status"].iter().chain(&file)).ended(0);
    let trail = world.run(["audit", "--json"].iter().chain(&file)).ended(0).json();
    assert_eq!(
        (&trail["items"][0]["actor"], &trail["items"][0]["action"]),
        (&"cli:ada".into(), &"migrate".into())
    );
    let sql = migrate(&["--print", "--prefix", "b_"]).ended(0).out;
    let own = Connection::open(world.path("own.db")).unwrap();
    own.execute_batch(&sql).unwrap();
    world.run(["status", "--database", "own.db", "--prefix", "b_"]).ended(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_measured() {
    let world = World::new().await;
    let measured = world.run(["bench", "--times", "3", "--json"]).ended(0).json();
    let rows = measured.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["perSecond"].as_u64().unwrap() > 0), "{measured:#}");
    world.run(["bench", "--folder", "no-such-folder"]).ended(1);
}
