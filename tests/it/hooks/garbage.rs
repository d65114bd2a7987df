//! The program's inputs, with random bytes: it does not panic or hang, and loses nothing that arrived completely. The
//! seed of the bytes is printed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Machine, NOWHERE};
use crate::support::{Receiver, TestDb, WorkerProcess};

const CLIS: [&str; 7] = [
    "claude-code",
    "codex",
    "codex-notify",
    "gemini",
    "cursor",
    "opencode",
    "qwen",
];

/// xorshift: the same bytes for the same seed on every machine.
struct Noise(u64);

impl Noise {
    fn new() -> Self {
        let seed = u64::from(uuid::Uuid::new_v4().as_fields().0) | 1;
        println!("seed {seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let len = self.below(longest);
        (0..len).map(|_| self.next().to_le_bytes()[3]).collect()
    }
}

#[test]
fn whatever_a_cli_sends_the_call_exits_0_and_its_event_is_kept() {
    let machine = Machine::new(NOWHERE);
    let mut noise = Noise::new();
    let calls = 60;
    for number in 0..calls {
        let whole = json!({"session_id": "s", "hook_event_name": "Stop", "n": number}).to_string();
        let payload = match number % 4 {
            0 => noise.bytes(400),
            1 => {
                let mut bytes = whole.into_bytes();
                let at = noise.below(bytes.len());
                bytes[at] = noise.bytes(9).first().copied().unwrap_or(b'{');
                bytes
            }
            2 => whole.as_bytes()[..noise.below(whole.len())].to_vec(),
            _ => whole.into_bytes(),
        };
        let stderr = machine.hook(CLIS[noise.below(CLIS.len())], &payload);
        assert!(
            stderr.contains("kept in the spool"),
            "{stderr}: {payload:?}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(!stderr.contains("internal error"), "{stderr}");
    }
    let spool = machine.spool();
    let kept: u64 = spool
        .files()
        .unwrap()
        .iter()
        .map(|file| spool.waiting(file).unwrap().unwrap().events)
        .sum();
    assert_eq!(kept, calls);
}

#[tokio::test]
async fn a_damaged_spool_is_sent_but_for_what_was_damaged() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    for number in 0..20 {
        machine.hook("codex", &super::numbered("s", number));
    }
    let mut noise = Noise::new();
    let file = machine.spool().files().unwrap().remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    let lines: Vec<usize> = (47..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
    // In the middle of a line, so that it is known which.
    let hit = noise.below(lines.len() - 1) + 1;
    let at = lines[hit - 1] + 1 + noise.below(lines[hit] - lines[hit - 1] - 1);
    bytes[at] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    machine.url = db.url().to_owned();
    let report: Value = machine.drain();
    assert_eq!(report["torn"].as_array().unwrap().len(), 1, "{report}");
    let prompts = super::prompts(&db.connect().await, "s").await;
    let expected: Vec<u64> = (0..20).filter(|n| *n != hit as u64).collect();
    assert_eq!(prompts, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probes_answer_after_any_request() {
    let db = TestDb::new().await;
    let receiver = Receiver::start(Duration::ZERO).await;
    let worker = WorkerProcess::start(db.url(), &receiver, &[]).await;
    let log = worker.log();
    let address = log.split("http=").nth(1).unwrap();
    let address = address.split_whitespace().next().unwrap().to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let mut noise = Noise::new();
        let send = |request: &[u8], and_ends: bool| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            // The listener may hang up before it has read everything.
            let _ = stream.write_all(request);
            if and_ends {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        };
        let large = "x".repeat(4 << 20);
        for request in [
            format!(
                "POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{large}",
                large.len()
            ),
            "POST /readyz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
                .to_owned(),
            format!("GET /{large} HTTP/1.1\r\nhost: x\r\n\r\n"),
            "GET /livez HTTP/9.9\r\n\r\n".to_owned(),
            "GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
        ] {
            let answer = send(request.as_bytes(), true);
            assert!(!answer.contains(" 200 "), "{answer}");
        }
        for _ in 0..40 {
            send(&noise.bytes(2_000), true);
        }
        // Who says that it ends before it has its answer may get none.
        send(
            b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            false,
        )
    })
    .await
    .unwrap();
    assert!(asked.starts_with("HTTP/1.1 200"), "{asked}");
    assert!(!worker.logged("panicked"), "{}", worker.log());
    assert!(worker.stop().await.success());
}
