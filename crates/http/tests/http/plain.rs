//! Plain requests: limits, time-outs, and nothing that leads elsewhere.

use std::time::Duration;

use twobox_http::{Call, ClientLimits, HttpClient};

use crate::fake::{Act, Fake, Vacant, say};

fn client() -> HttpClient {
    HttpClient::new(ClientLimits::default(), 10)
}

fn impatient() -> HttpClient {
    let limits = ClientLimits {
        answer_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(300),
        ..ClientLimits::default()
    };
    HttpClient::new(limits, 10)
}

fn call(url: &str) -> Call {
    Call::new("POST", url, "body").unwrap().header("idempotency-key", "é-1").unwrap()
}

#[tokio::test]
async fn an_answer_is_read_whatever_its_status() {
    let fake = Fake::new(|seen| {
        assert!(seen.head.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{}", seen.head);
        assert_eq!(seen.body, b"body");
        Act::Say(say("503 Service Unavailable", &[("retry-after", "7"), ("x-why", "tired")], b"0123456789"))
    })
    .await;
    let reply = client().call(call(&format!("{}/a?b=c", fake.url()))).await.unwrap();
    assert_eq!((reply.status, reply.retry_after()), (503, Some(Duration::from_secs(7))));
    assert_eq!((reply.header("x-why"), reply.header("x-none")), (Some("tired"), None));
    assert_eq!(reply.body.unwrap(), "0123456789");
}

#[tokio::test]
async fn s16_a_large_answer_is_not_kept_and_a_redirect_not_followed() {
    let fake = Fake::new(|_| Act::Say(say("302 Found", &[("location", "/elsewhere")], b"0123456789+"))).await;
    let reply = client().call(call(&fake.url())).await.unwrap();
    assert_eq!((reply.status, reply.body), (302, None));
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn s16_silence_at_any_point_has_an_end() {
    let silent: [&[u8]; 3] = [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"];
    for said in silent {
        let fake = Fake::new(move |_| Act::Hang(said.to_vec())).await;
        let error = impatient().call(call(&fake.url())).await.unwrap_err();
        assert!(error.is_ambiguous(), "{error}");
    }
    let cut = Fake::new(|_| Act::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab".to_vec())).await;
    assert!(client().call(call(&cut.url())).await.unwrap_err().is_ambiguous());
    let refused = client().call(call(&Vacant::new().url())).await.unwrap_err();
    assert!(!refused.is_ambiguous(), "nothing can have arrived");
}

#[test]
fn s17_calls_that_cannot_be_made_are_refused_and_nothing_is_shown() {
    for url in ["ftp://h", "http://", "http://user:canary@h/", "http://h/#canary", "http://h:x/?canary"] {
        let error = Call::new("POST", url, "").err().unwrap_or_else(|| panic!("{url}"));
        assert!(!error.chain().contains("canary"), "{error}");
    }
    assert!(Call::new("NO METHOD", "http://h/", "").is_err());
    let call = Call::new("GET", "http://h/", "canary").unwrap();
    let error = call.clone().header("authorization", "canary\r\nx: y").err().unwrap();
    assert!(!error.chain().contains("canary"));
    let call = call.header("authorization", "Bearer canary").unwrap();
    assert!(!format!("{call:?} {:?}", client()).contains("canary"));
}
