//! The same over TLS.

use crate::program::{DONE, Program};
use crate::world::{Node, World};

#[tokio::test(flavor = "multi_thread")]
async fn messages_travel_over_tls_between_nodes() {
    let program = Program::start(|_, _| DONE).await;
    let world = World::new();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".into()]).unwrap();
    std::fs::write(world.path("certificate.pem"), made.cert.pem()).unwrap();
    std::fs::write(world.path("certificate.key"), made.signing_key.serialize_pem()).unwrap();
    let path = |name: &str| world.path(name).to_str().unwrap().to_owned();
    let billing = world.configure(
        "billing",
        &format!(
            "[receive]\nlisten = \"127.0.0.1:0\"\ntls_certificate_file = {:?}\ntls_key_file = {:?}\n\
             [sources.shop]\nkeys = {}\n[handler]\nurl = {:?}\n",
            path("certificate.pem"),
            path("certificate.key"),
            world.keys(&["1"]),
            program.url(),
        ),
    );
    let billing = Node::start(&billing).await;
    let shop = world.configure(
        "shop",
        &format!(
            "[destinations.billing]\nurl = \"https://{}\"\nkeys = {}\ntls_roots_file = {:?}\n",
            billing.listen(),
            world.keys(&["1"]),
            path("certificate.pem"),
        ),
    );
    let shop = Node::start(&shop).await;
    world.enqueue(["m".into()]);
    assert_eq!(program.until_seen(1).await[0].id(), "m");
    shop.stop().await;
    billing.stop().await;
}
