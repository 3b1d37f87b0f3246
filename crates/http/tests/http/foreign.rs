//! A foreign answer never counts: nothing becomes Sent because of it, and no message is charged for it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpSocket;
use twobox_core::message::PAYLOAD_BYTES_MAX;
use twobox_core::ports::{Answer, Transport};
use twobox_core::signing::{SignedProbe, sign_probe};
use twobox_core::system::SystemClock;
use twobox_core::wire::{ANSWER_BYTES_MAX, ANSWER_TYPE, Probe, encode_answers, header};
use twobox_core::{Clock, Message, MessageId, Payload};
use twobox_http::{ClientLimits, Http};
use twobox_testkit::eventually;

use crate::fake::{Act, Fake, Seen, Vacant, say, say_signed};
use crate::post::{BATCH, Poster, Reply, seal_batch};
use crate::world::{Billing, EVER, Shop, key, keyring, link, message};

const HTML: &[u8] = b"<html><body>Welcome</body></html>";
const OURS: (&str, &str) = ("content-type", ANSWER_TYPE);
const WEB: (&str, &str) = ("content-type", "text/html");

/// How the address behaves, and what the transport is to say about it.
struct Case {
    url: String,
    /// Whether a message may be what broke the receiver.
    ambiguous: bool,
    says: &'static str,
    signed: bool,
    limits: ClientLimits,
}

impl Case {
    fn of(fake: &Fake, ambiguous: bool, says: &'static str) -> Self {
        Self { url: fake.url(), ambiguous, says, signed: true, limits: ClientLimits::default() }
    }

    fn http(&self) -> Http {
        let http = if self.signed { Http::signed(&self.url, keyring()) } else { Http::unsigned(&self.url) };
        http.unwrap().limits(self.limits.clone())
    }

    /// The transport takes it for what it is, and so does a relay for as long as `meanwhile` lasts; the relay is
    /// given back with its messages unsent.
    async fn is_not_believed(&self, meanwhile: impl AsyncFnOnce()) -> Shop {
        let http = self.http();
        let error = http.deliver(&link(), vec![message("a"), message("b")], EVER).await.unwrap_err();
        assert!(error.to_string().contains(self.says), "{error}");
        assert_eq!(error.is_ambiguous(), self.ambiguous, "{error}");
        assert!(http.deliver(&link(), Vec::new(), EVER).await.is_err(), "a probe is not answered either");
        let shop = Shop::start(&[("billing", Arc::new(http))]).await;
        shop.enqueue("billing", "m", MESSAGES).await;
        shop.until_held("billing").await;
        meanwhile().await;
        let lane = shop.lane("billing").await.unwrap();
        assert_eq!((lane.sent, lane.failed, lane.expired), (0, 0, 0));
        is_uncharged(&shop).await;
        let sent = "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'";
        assert_eq!(shop.store.count(sent).await, 0);
        shop
    }

    /// A genuine receiver to take over from it.
    async fn genuine(&self) -> Billing {
        if self.signed { Billing::signed().await } else { Billing::unsigned().await }
    }
}

const MESSAGES: usize = 5;

async fn is_uncharged(shop: &Shop) {
    let charged = "SELECT count(*) FROM outbox_messages WHERE retry_count > 0";
    assert_eq!(shop.store.count(charged).await, 0);
    assert_eq!(shop.store.count("SELECT count(*) FROM outbox_attempts").await, 0);
}

/// Everything arrives, once, and nobody is blamed for what was before.
async fn arrives_once(shop: Shop, billing: Billing) {
    shop.until_sent("billing", MESSAGES as u64).await;
    is_uncharged(&shop).await;
    assert_eq!(billing.effects().await, i64::try_from(MESSAGES).unwrap());
    assert_eq!(billing.store.count("SELECT count(*) FROM inbox").await, i64::try_from(MESSAGES).unwrap());
    shop.stop().await;
    billing.stop().await;
}

/// The whole story: it is not believed, not by a relay that asks several times either, and when it is gone
/// everything is as if it had never been.
async fn never_counts(fake: Fake, case: Case) {
    // The first two requests are the transport's own; then come messages, and at least one probe.
    let shop = case.is_not_believed(async || fake.until_requests(4).await).await;
    let billing = case.genuine().await;
    fake.forward(billing.address);
    arrives_once(shop, billing).await;
}

/// Never counts, whatever is asked.
async fn answer_never_counts(ambiguous: bool, says: &'static str, answer: Vec<u8>) {
    let fake = Fake::new(move |_| Act::Say(answer.clone())).await;
    let case = Case::of(&fake, ambiguous, says);
    never_counts(fake, case).await;
}

/// An answer that says done about these messages.
fn done<'a>(ids: impl IntoIterator<Item = &'a MessageId>) -> Vec<u8> {
    encode_answers(ids.into_iter().zip(std::iter::repeat(&Answer::Done(None))))
}

/// Answers every message with `body`, well signed. Probes get nothing, because an answered probe would make what
/// follows the message's own fault.
async fn signed_never_counts(
    says: &'static str,
    body: impl Fn(&[MessageId]) -> Vec<u8> + Send + Sync + 'static,
) {
    let fake = Fake::new(move |seen| {
        Act::Say(if seen.is_probe() {
            say("502 Bad Gateway", &[WEB], HTML)
        } else {
            say_signed(&key("shop-1", 1), seen, &body(&seen.ids()))
        })
    })
    .await;
    let case = Case::of(&fake, true, says);
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_web_page_with_status_200_never_counts() {
    answer_never_counts(false, "not come from a receiver of ours", say("200 OK", &[WEB], HTML)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_web_page_under_our_content_type_never_counts() {
    answer_never_counts(true, "not signed", say("200 OK", &[OURS], HTML)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_no_content_never_counts() {
    answer_never_counts(false, "204", say("204 No Content", &[], b"")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_03_an_error_page_never_counts() {
    answer_never_counts(true, "500", say("500 Internal Server Error", &[WEB], HTML)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_something_that_is_not_http_never_counts() {
    answer_never_counts(true, "the connection broke", b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_03_a_connection_that_is_closed_without_an_answer_never_counts() {
    answer_never_counts(true, "the connection broke", Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_done_without_a_signature_never_counts() {
    let fake = Fake::new(|seen| Act::Say(say("200 OK", &[OURS], &done(&seen.ids())))).await;
    let case = Case::of(&fake, true, "not signed");
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_done_signed_with_another_secret_never_counts() {
    let fake = Fake::new(|seen| Act::Say(say_signed(&key("shop-1", 9), seen, &done(&seen.ids())))).await;
    let case = Case::of(&fake, true, "signature does not hold");
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_done_signed_under_the_name_of_another_key_never_counts() {
    let fake = Fake::new(|seen| Act::Say(say_signed(&key("shop-2", 1), seen, &done(&seen.ids())))).await;
    let case = Case::of(&fake, true, "signature does not hold");
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_genuine_signature_over_another_body_never_counts() {
    let fake = Fake::new(|seen| {
        let signed = say_signed(&key("shop-1", 1), seen, b"{\"answers\":[]}");
        let head_ends = signed.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(signed[..head_ends].to_vec()).unwrap();
        let body = [&done(&seen.ids())[..], b" "].concat();
        let head = head.replace("content-length: 14", &format!("content-length: {}", body.len()));
        Act::Say([head.as_bytes(), b"\r\n\r\n", &body].concat())
    })
    .await;
    let case = Case::of(&fake, true, "signature does not hold");
    never_counts(fake, case).await;
}

/// Genuine answers to a probe and to these messages, recorded a moment before.
async fn recorded(batches: [&[Arc<Message>]; 2]) -> [Reply; 3] {
    let billing = Billing::signed().await;
    let (post, sent, shop) = (Poster::new(billing.address), SystemClock::default().now(), key("shop-1", 1));
    let signature = sign_probe(&shop, &SignedProbe { link: &link(), sent });
    let probe = Probe { link: (*link()).clone(), sent, signature };
    let of_probe = post.post(BATCH, &probe.headers(), "[]").await;
    let of = batches.map(|batch| seal_batch(batch.iter().map(|message| (&**message, &shop)), sent));
    let replies = [of_probe, post.batch(of[0].clone()).await, post.batch(of[1].clone()).await];
    assert!(replies.iter().all(|reply| reply.status == 200 && reply.header(header::HMAC).is_some()));
    billing.stop().await;
    replies
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_genuine_answer_to_an_earlier_request_never_counts() {
    let messages: Vec<_> = (0..MESSAGES).map(|n| message(&format!("m{n}"))).collect();
    let [of_probe, of_two, of_rest] = recorded([&[message("a"), message("b")], &messages]).await;
    let fake = Fake::new(move |seen| {
        let reply = match seen.ids().len() {
            0 => &of_probe,
            2 => &of_two,
            _ => &of_rest,
        };
        let signature = [header::KEY_ID, header::HMAC].map(|name| (name, reply.header(name).unwrap()));
        Act::Say(say("200 OK", &[OURS, signature[0], signature[1]], &reply.body))
    })
    .await;
    let case = Case::of(&fake, true, "signature does not hold");
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_an_answer_that_breaks_off_never_counts() {
    let fake = Fake::new(|seen| {
        let mut answer = say_signed(&key("shop-1", 1), seen, &done(&seen.ids()));
        answer.pop();
        Act::Say(answer)
    })
    .await;
    let case = Case::of(&fake, true, "broke off");
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_an_answer_that_leaves_a_message_out_never_counts() {
    signed_never_counts("cannot be read", |ids| done(&ids[1..])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_an_answer_about_one_message_more_never_counts() {
    signed_never_counts("cannot be read", |ids| done(ids.iter().chain([&ids[0]]))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_an_answer_in_another_order_never_counts() {
    signed_never_counts("cannot be read", |ids| done(ids.iter().rev())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_an_answer_to_other_messages_never_counts() {
    signed_never_counts("cannot be read", |ids| {
        let others: Vec<_> = ids.iter().map(|id| MessageId::new(format!("{id}-other")).unwrap()).collect();
        done(&others)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_redirects_are_not_followed() {
    let billing = Billing::signed().await;
    for content_type in [WEB, OURS] {
        let decoy = Fake::wire(billing.address).await;
        let location = format!("{}{BATCH}", decoy.url());
        let redirect = say("307 Temporary Redirect", &[("location", &location), content_type], HTML);
        let fake = Fake::new(move |_| Act::Say(redirect.clone())).await;
        let case = Case::of(&fake, false, "307");
        never_counts(fake, case).await;
        assert_eq!(decoy.connections(), 0);
    }
    assert_eq!(billing.effects().await, 0);
    billing.stop().await;
}

/// The head of an answer that goes on for as long as the connection.
fn endless(content_type: (&str, &str)) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{}: {}\r\n\r\n", content_type.0, content_type.1).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_an_endless_answer_is_read_up_to_its_limit_and_never_counts() {
    let fake = Fake::new(|_| Act::Drone(endless(OURS), vec![b' '; 64 << 10], None)).await;
    let case = Case::of(&fake, true, "broke off");
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_an_endless_web_page_is_not_read_at_all_and_never_counts() {
    let fake = Fake::new(|_| Act::Drone(endless(WEB), vec![b' '; 64 << 10], None)).await;
    let case = Case::of(&fake, false, "not come from a receiver of ours");
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_an_answer_that_trickles_is_given_up_and_never_counts() {
    let pause = Some(Duration::from_millis(20));
    let fake = Fake::new(move |_| Act::Drone(endless(OURS), vec![b' '], pause)).await;
    let limits = ClientLimits { body_timeout: Duration::from_secs(1), ..ClientLimits::default() };
    let case = Case { limits, ..Case::of(&fake, true, "did not end within 1s") };
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_an_answer_beyond_the_limit_never_counts_be_it_signed() {
    let fake = Fake::new(|seen| {
        let mut body = done(&seen.ids());
        body.resize(ANSWER_BYTES_MAX + 1, b' ');
        Act::Say(say_signed(&key("shop-1", 1), seen, &body))
    })
    .await;
    let case = Case::of(&fake, true, "broke off");
    never_counts(fake, case).await;
}

/// Long enough for a receiver on a busy machine, short enough to be waited for a few times.
fn impatient() -> ClientLimits {
    ClientLimits { answer_timeout: Duration::from_secs(2), ..ClientLimits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_03_silence_is_given_up_and_never_counts() {
    let fake = Fake::new(|_| Act::Hang(Vec::new())).await;
    let case = Case { limits: impatient(), ..Case::of(&fake, true, "no answer within 2s") };
    never_counts(fake, case).await;
}

/// Connections to an address that somebody here still has open.
#[cfg(target_os = "linux")]
fn open_to(address: SocketAddr) -> usize {
    let IpAddr::V4(ip) = address.ip() else { panic!("not here") };
    let remote = format!("{:08X}:{:04X}", u32::from_le_bytes(ip.octets()), address.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // What the system alone goes on with has no inode.
    rows.filter(|row| row[2] == remote && row[9] != "0").count()
}

/// A request that was given up is not written on for as long as somebody takes nothing of it.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn rf_03_s16_whoever_takes_the_connection_and_reads_nothing_is_given_up() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let deaf = socket.listen(1).unwrap();
    let address = deaf.local_addr().unwrap();
    let http = Http::signed(&format!("http://{address}"), keyring()).unwrap().limits(impatient());
    // More than the system takes for somebody who does not read.
    let large = (0..8).map(|n| {
        let mut large = (*message(&format!("m{n}"))).clone();
        large.payload = Payload::json(&"x".repeat(PAYLOAD_BYTES_MAX - 2)).unwrap();
        Arc::new(large)
    });
    let deliver = http.deliver(&link(), large.collect(), EVER);
    let (refused, _accepted) = tokio::join!(deliver, deaf.accept());
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("no answer within 2s"), "{error}");
    assert!(error.is_ambiguous(), "{error}");
    eventually("the connection is given up as well", EVER, async || (open_to(address) == 0).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_03_an_answer_whose_head_never_ends_is_given_up_and_never_counts() {
    let fake = Fake::new(|_| Act::Hang(b"HTTP/1.1 200 OK\r\ncontent-".to_vec())).await;
    let case = Case { limits: impatient(), ..Case::of(&fake, true, "no answer within 2s") };
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_03_a_refused_connection_never_counts() {
    let vacant = Vacant::new();
    let case = Case {
        url: vacant.url(),
        ambiguous: false,
        says: "cannot connect",
        signed: true,
        limits: ClientLimits::default(),
    };
    let shop = case.is_not_believed(async || {}).await;
    let billing = case.genuine().await;
    let _wire = vacant.open(billing.address);
    arrives_once(shop, billing).await;
}

/// What an unsigned transport can still tell from an answer.
async fn unsigned_never_counts(
    ambiguous: bool,
    says: &'static str,
    answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static,
) {
    let fake = Fake::new(move |seen| Act::Say(answer(seen))).await;
    let case = Case { signed: false, ..Case::of(&fake, ambiguous, says) };
    never_counts(fake, case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_without_signatures_another_content_type_never_counts() {
    for content_type in ["application/json", "text/html", "application/vnd.twobox+json; charset=utf-8"] {
        unsigned_never_counts(false, "not come from a receiver of ours", move |seen| {
            say("200 OK", &[("content-type", content_type)], &done(&seen.ids()))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_without_signatures_an_answer_to_other_messages_never_counts() {
    let other = MessageId::new("other").unwrap();
    unsigned_never_counts(true, "cannot be read", move |seen| {
        let count = seen.ids().len().max(1); // one too many for a probe
        say("200 OK", &[OURS], &done(std::iter::repeat_n(&other, count)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_without_signatures_another_number_of_answers_never_counts() {
    let other = MessageId::new("other").unwrap();
    unsigned_never_counts(true, "cannot be read", move |seen| {
        say("200 OK", &[OURS], &done(seen.ids().iter().chain([&other])))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_without_signatures_what_is_not_an_answer_never_counts() {
    unsigned_never_counts(true, "cannot be read", |_| say("200 OK", &[OURS], HTML)).await;
}

/// Most answers of this kind come from what stands in front of a receiver; it knows how long it wants to be left alone.
#[tokio::test(flavor = "multi_thread")]
async fn l3_whatever_stands_in_front_of_a_receiver_may_ask_for_patience() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let fake = Fake::new(move |_| Act::Say(say(status, &[WEB, ("retry-after", "120")], HTML))).await;
        let http = Case::of(&fake, false, "").http();
        let error = http.deliver(&link(), vec![message("a")], EVER).await.unwrap_err();
        assert_eq!((error.is_ambiguous(), error.retry_after()), (false, Some(Duration::from_secs(120))));
    }
}
