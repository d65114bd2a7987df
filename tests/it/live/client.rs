//! A client that reads an event stream.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

pub const LIMIT: Duration = Duration::from_secs(30);

/// One message. `name` is empty for an event of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Got {
    pub name: String,
    pub data: Value,
}

impl Got {
    pub fn seq(&self) -> i64 {
        self.data["seq"]
            .as_i64()
            .unwrap_or_else(|| panic!("no event: {self:?}"))
    }

    pub fn session(&self) -> &str {
        self.data["session"].as_str().unwrap()
    }
}

pub struct Follower {
    response: Response,
    buffer: Vec<u8>,
    /// The last id, as a browser remembers it.
    pub id: String,
    /// Messages with an id and no data.
    pub heartbeats: usize,
}

impl Follower {
    /// It is let in.
    pub async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let status = response.status();
        if status != 200 {
            panic!("{status}: {}", response.text().await.unwrap());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self::of(response)
    }

    pub fn of(response: Response) -> Self {
        Self {
            response,
            buffer: Vec::new(),
            id: String::new(),
            heartbeats: 0,
        }
    }

    /// The next message; `None` where the connection has ended or broke.
    pub async fn next(&mut self) -> Option<Got> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(got) = self.read_block() {
                return Some(got);
            }
            let chunk = timeout_at(deadline, self.response.chunk()).await;
            match chunk.unwrap_or_else(|_| panic!("nothing comes after {:?}", self.id)) {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn read_block(&mut self) -> Option<Got> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let (mut name, mut data) = (String::new(), None);
            for line in std::str::from_utf8(&block).unwrap().lines() {
                match line.split_once(": ") {
                    Some(("id", id)) => self.id = id.to_owned(),
                    Some(("event", event)) => name = event.to_owned(),
                    Some(("data", text)) => data = Some(serde_json::from_str(text).unwrap()),
                    Some(("retry", _)) | None => {}
                    other => panic!("{other:?}"),
                }
            }
            match data {
                Some(data) => return Some(Got { name, data }),
                None => self.heartbeats += 1,
            }
        }
    }

    /// The next message, which is there.
    pub async fn got(&mut self) -> Got {
        self.next().await.expect("the connection goes on")
    }

    /// The seqs of the next events.
    pub async fn seqs(&mut self, count: usize) -> Vec<i64> {
        let mut seqs = Vec::new();
        while seqs.len() < count {
            seqs.push(self.got().await.seq());
        }
        seqs
    }

    /// Nothing comes for this long.
    pub async fn assert_silent(&mut self, during: Duration) {
        if let Ok(got) = timeout(during, self.next()).await {
            panic!("{got:?}");
        }
    }

    /// The beginning has arrived: whatever is appended from now on is new.
    pub async fn greeted(&mut self) {
        while self.heartbeats == 0 {
            let chunk = timeout(LIMIT, self.response.chunk())
                .await
                .unwrap()
                .unwrap();
            self.buffer.extend_from_slice(&chunk.expect("a greeting"));
            let before = self.buffer.clone();
            if self.read_block().is_some() {
                self.buffer = before;
                return;
            }
        }
    }
}
