//! Standard output, with a pipe in its place.

use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_adapters::{LineWriter, Stdout};
use lanekeeper_core::adapter::{Adapter, Verdict};
use tokio::sync::Notify;

use super::conforms;
use super::destination::{
    Conduct, Destination, Recorder, deliver, deliver_in_task, event, retry_error,
};

// No final refusal: a pipe has none. What a dropped delivery leaves behind is tested below: the
// thread that is stuck in the pipe is the output's, not the delivery's.
conforms!(Pipe:
    accepted_event_arrives_whole,
    passing_failure_is_retried,
    silence_ends_at_the_time_out_in_a_retry,
    payload_passes_through_unchanged,
    any_session_name_is_carried,
    concurrent_deliveries_do_not_mix,
);

struct Pipe {
    lines: LineWriter,
    timeout: Duration,
    read: Arc<(Mutex<Vec<String>>, Notify)>,
    /// Kept open, so that the full pipe blocks and does not break.
    _unread: Option<PipeReader>,
}

impl Pipe {
    fn read_in_a_thread(&self, reader: PipeReader) {
        let read = self.read.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                read.0.lock().unwrap().push(line.unwrap());
                read.1.notify_one();
            }
        });
    }
}

#[async_trait]
impl Destination for Pipe {
    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let (reader, mut writer) = io::pipe().unwrap();
        if conduct == Conduct::Hang {
            fill(&mut writer);
        }
        let mut pipe = Pipe {
            lines: LineWriter::start(writer).unwrap(),
            timeout,
            read: Arc::default(),
            _unread: None,
        };
        match conduct {
            Conduct::Accept => pipe.read_in_a_thread(reader),
            Conduct::Hang => pipe._unread = Some(reader),
            Conduct::FailForNow | Conduct::Refuse => drop(reader),
        }
        pipe
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::new(Stdout::to(self.lines.clone(), self.timeout))
    }
}

#[async_trait]
impl Recorder for Pipe {
    async fn bodies(&self, n: usize) -> Vec<String> {
        loop {
            let read = self.read.0.lock().unwrap().clone();
            if read.len() >= n {
                return read;
            }
            self.read.1.notified().await;
        }
    }
}

/// Fills the pipe to the brim, so that the next write blocks.
fn fill(writer: &mut io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(&*writer).unwrap();
    fcntl_setfl(&*writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b' '; 4096]).is_ok() {}
    while writer.write(b" ").is_ok() {}
    fcntl_setfl(&*writer, flags).unwrap();
}

#[tokio::test]
async fn closed_pipe_is_named_in_the_error() {
    let pipe = Pipe::start(Conduct::FailForNow, Duration::from_secs(10)).await;
    let error = retry_error(deliver(&*pipe.adapter(), &event("s-1", 1, "{}")).await);
    assert!(error.contains("broken pipe"), "{error}");
}

#[tokio::test]
async fn line_names_its_subscription_and_stays_one_line() {
    let pipe = Pipe::start(Conduct::Accept, Duration::from_secs(10)).await;
    let event = event("two\nlines", 1, "{\n\"a\": 1\r\n}");
    assert_eq!(deliver(&*pipe.adapter(), &event).await, Verdict::Accepted);
    let lines = pipe.bodies(1).await;
    let body: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(body["subscription"], "audit");
    assert_eq!(body["data"]["a"], 1);
}

/// Takes a line only when told to, in full or torn.
struct Gate {
    orders: mpsc::Receiver<io::Result<usize>>,
    entered: mpsc::Sender<()>,
    text: Arc<Mutex<Vec<u8>>>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.entered.send(()).map_err(io::Error::other)?;
        let taken = self
            .orders
            .recv()
            .map_err(io::Error::other)??
            .min(bytes.len());
        self.text.lock().unwrap().extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// On one thread: a yield runs every task up to its next wait.
#[tokio::test]
async fn dropped_delivery_is_not_written_when_its_turn_comes() {
    let (order, orders) = mpsc::channel();
    let (entered, entries) = mpsc::channel();
    let text = Arc::<Mutex<Vec<u8>>>::default();
    let gate = Gate {
        orders,
        entered,
        text: text.clone(),
    };
    let lines = LineWriter::start(gate).unwrap();
    let adapter: Arc<dyn Adapter> = Arc::new(Stdout::to(lines, Duration::from_secs(10)));
    let first = deliver_in_task(adapter.clone(), event("first", 1, "1"));
    tokio::task::yield_now().await;
    entries
        .recv_timeout(Duration::from_secs(10))
        .expect("the first line reaches the output");
    let dropped = deliver_in_task(adapter.clone(), event("dropped", 1, "1"));
    tokio::task::yield_now().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    for _ in 0..2 {
        order.send(Ok(usize::MAX)).unwrap();
    }
    assert_eq!(first.await.unwrap(), Verdict::Accepted);
    assert_eq!(
        deliver(&*adapter, &event("last", 1, "1")).await,
        Verdict::Accepted
    );
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    let sessions: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["session"].clone())
        .collect();
    assert_eq!(sessions, ["first", "last"]);
}

#[tokio::test]
async fn line_after_a_torn_one_starts_afresh() {
    let (order, orders) = mpsc::channel();
    let (entered, _entries) = mpsc::channel();
    let text = Arc::<Mutex<Vec<u8>>>::default();
    let gate = Gate {
        orders,
        entered,
        text: text.clone(),
    };
    let adapter = Stdout::to(LineWriter::start(gate).unwrap(), Duration::from_secs(10));
    order.send(Ok(5)).unwrap();
    order.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
    let error = retry_error(deliver(&adapter, &event("torn", 1, "1")).await);
    assert!(error.contains("cannot be written"), "{error}");
    for _ in 0..2 {
        order.send(Ok(usize::MAX)).unwrap();
    }
    assert_eq!(
        deliver(&adapter, &event("whole", 1, "1")).await,
        Verdict::Accepted
    );
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    let (torn, whole) = text.split_once('\n').unwrap();
    assert_eq!(torn, "{\"id\"");
    assert!(
        whole.starts_with("{\"id\"") && whole.ends_with("}\n"),
        "{whole}"
    );
}
