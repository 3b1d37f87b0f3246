//! Answers as JSON, there and back.

use std::time::Duration;

use twobox_core::ports::Answer;
use twobox_core::wire::{
    ANSWER_BYTES_MAX, BatchAnswer, RESPONSES_BYTES_MAX, answer_status, encode_answer, encode_answers,
    encode_refusal, parse_answer, parse_answers, parse_batch_answer, parse_refusal, with_inbox,
};
use twobox_core::{MessageId, Payload, Response};

fn id(text: &str) -> MessageId {
    MessageId::new(text).expect("legal")
}

fn response(content_type: &str, body: &[u8]) -> Option<Response> {
    Some(Response { content_type: content_type.into(), body: Payload::new(body.to_vec()) })
}

fn every_answer() -> Vec<Answer> {
    let after = Duration::from_millis(1500);
    vec![
        Answer::Done(response("application/json", br#"{"invoice": 7}"#)),
        Answer::Done(response("application/json", b"null")),
        Answer::Done(response("application/json", b"")),
        Answer::Done(None),
        Answer::Duplicate(response("text/plain", b"\xff\"\n")),
        Answer::InProgress { after },
        Answer::Held,
        Answer::NotReached,
        Answer::TooEarly { after },
        Answer::Retry { after: Some(Duration::ZERO), error: "later".into() },
        Answer::Retry { after: None, error: "\"quoted\" und öfter".into() },
        Answer::Rejected { error: "never".into() },
        Answer::Conflict,
        Answer::TooOld,
        Answer::UnknownEndpoint,
    ]
}

#[test]
fn rf_08_every_answer_survives_alone_and_in_a_batch() {
    let answers = every_answer();
    let ids: Vec<MessageId> = (0..answers.len()).map(|n| id(&format!("m\"{n}"))).collect();
    for (id, answer) in ids.iter().zip(&answers) {
        assert_eq!(parse_answer(&encode_answer(id, answer), id).unwrap(), *answer);
    }
    let bytes = encode_answers(ids.iter().zip(&answers));
    assert_eq!(parse_answers(&bytes, ids.iter()).unwrap(), answers);
    assert_eq!(parse_answers(&encode_answers([]), [].iter()).unwrap(), [], "a probe is answered too");
}

/// RF-18: which inbox answers stands in the body, so the signature covers it; whoever does not know it passes over it.
#[test]
fn rf_18_an_answer_says_which_inbox_gives_it_and_old_ones_do_not() {
    let (ids, done) = ([id("m")], Answer::Done(None));
    let old = encode_answers(ids.iter().zip([&done]));
    let read = |bytes: &[u8]| parse_batch_answer(bytes, ids.iter()).unwrap();
    assert_eq!(read(&old), BatchAnswer { answers: vec![done.clone()], inbox: None });
    let new = with_inbox(old, "inbox \"1\"");
    assert_eq!(read(&new).inbox.as_deref(), Some("inbox \"1\""));
    assert_eq!(parse_answers(&new, ids.iter()).unwrap(), vec![done.clone()], "the rest is as it was");
    let probe = with_inbox(encode_answers([]), "i");
    assert_eq!(String::from_utf8(probe).unwrap(), r#"{"answers":[],"inbox":"i"}"#);
    let one = with_inbox(encode_answer(&ids[0], &done), "i");
    assert_eq!(parse_answer(&one, &ids[0]).unwrap(), done);
    for none in ["", "\u{7}", &"x".repeat(256)] {
        assert_eq!(read(&with_inbox(encode_answers(ids.iter().zip([&done])), none)).inbox, None, "{none:?}");
    }
}

#[test]
fn rf_08_members_have_the_documented_names() {
    let text = |answer| String::from_utf8(encode_answer(&id("m"), &answer)).unwrap();
    assert_eq!(
        text(Answer::Duplicate(response("application/json", b"1"))),
        r#"{"messageId":"m","outcome":"duplicate","payload":1,"acknowledged":true,"duplicateDetected":true}"#
    );
    assert_eq!(
        text(Answer::Done(response("text/plain", b"ok"))),
        r#"{"messageId":"m","outcome":"done","payload":"b2s=","contentType":"text/plain","encoding":"base64","acknowledged":true,"duplicateDetected":false}"#
    );
    assert_eq!(
        text(Answer::Retry { after: Some(Duration::from_micros(1)), error: "no".into() }),
        r#"{"messageId":"m","outcome":"retry","error":"no","retryAfterMs":1}"#
    );
    let batch = encode_answers([(&id("m"), &Answer::Duplicate(response("application/json", b"1")))]);
    assert_eq!(
        String::from_utf8(batch).unwrap(),
        r#"{"answers":[{"messageId":"m","outcome":"duplicate","payload":1}]}"#,
        "where there may be hundreds, the outcome says it alone"
    );
}

#[test]
fn rf_08_status_codes_tell_success_from_everything_else() {
    let codes: Vec<u16> = every_answer().iter().map(answer_status).collect();
    assert_eq!(codes, [200, 200, 200, 200, 200, 409, 409, 503, 425, 500, 500, 422, 409, 410, 404]);
}

#[test]
fn responses_beyond_the_limit_are_left_out_of_a_batch_but_not_of_a_single_answer() {
    let large = || response("text/plain", &vec![7; RESPONSES_BYTES_MAX / 2]);
    let (ids, answers) =
        ([id("a"), id("b"), id("c")], [Answer::Done(large()), Answer::Done(large()), Answer::Held]);
    let parsed = parse_answers(&encode_answers(ids.iter().zip(&answers)), ids.iter()).unwrap();
    assert_eq!(parsed, [answers[0].clone(), Answer::Done(None), Answer::Held]);
    assert_eq!(parse_answer(&encode_answer(&ids[1], &answers[1]), &ids[1]).unwrap(), answers[1]);
    let larger = [Answer::Duplicate(response("text/plain", &vec![7; RESPONSES_BYTES_MAX + 1]))];
    let alone = encode_answers(ids[..1].iter().zip(&larger));
    assert_eq!(parse_answers(&alone, ids[..1].iter()).unwrap(), larger, "nor of a batch of one");
}

#[test]
fn s11_what_is_no_answer_to_these_messages_is_refused() {
    let m = id("m");
    let honest = r#"{"messageId":"m","outcome":"done"}"#;
    assert_eq!(parse_answer(honest.as_bytes(), &m).unwrap(), Answer::Done(None));
    let deep =
        format!(r#"{{"messageId":"m","outcome":"done","payload":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for text in [
        "",
        "<html>OK</html>",
        "{}",
        "[]",
        "null",
        &honest[..20],
        r#"{"messageId":"n","outcome":"done"}"#,
        r#"{"messageId":"m","outcome":"done","outcome":"retry"}"#,
        r#"{"messageId":"m","outcome":"in_progress","retryAfterMs":-1}"#,
        r#"{"messageId":"m","outcome":"done"} trailing"#,
        &deep,
    ] {
        assert!(parse_answer(text.as_bytes(), &m).is_err(), "{text}");
    }
    assert!(parse_answer(&vec![b' '; ANSWER_BYTES_MAX + 1], &m).is_err());
    for text in [r#"{"answers":[]}"#, r#"{"answers":[{"messageId":"n","outcome":"done"}]}"#, honest] {
        assert!(parse_answers(text.as_bytes(), [m.clone()].iter()).is_err(), "{text}");
    }
}

#[test]
fn what_cannot_be_read_of_an_authentic_answer_charges_nobody() {
    let parse = |text: &str| parse_answer(text.as_bytes(), &id("m")).unwrap();
    for response in [
        r#""payload":"%","encoding":"base64""#,
        r#""payload":1,"encoding":"gzip""#,
        r#""payload":1,"contentType":"\u0000""#,
    ] {
        assert_eq!(
            parse(&format!(r#"{{"messageId":"m","outcome":"done",{response}}}"#)),
            Answer::Done(None),
            "{response}"
        );
    }
    assert!(matches!(parse(r#"{"messageId":"m","outcome":"fine"}"#), Answer::InProgress { .. }));
}

#[test]
fn s17_what_a_refusal_says_is_made_harmless() {
    assert_eq!(parse_refusal(&encode_refusal("busy", "try\nlater\u{1b}[2J")).unwrap(), "try later [2J");
    assert!(parse_refusal(&encode_refusal("busy", &"x".repeat(100_000))).unwrap().len() < 5_000);
    assert_eq!(parse_refusal(b"<html>"), None);
}
