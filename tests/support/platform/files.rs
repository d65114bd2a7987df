//! `getFile` and the download as core.telegram.org/bots/api#getfile has them.

use std::collections::HashMap;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::watch;

/// What a download is answered with.
#[derive(Clone, Debug)]
pub enum Given {
    Whole(Vec<u8>),
    /// Bytes without an end, and without a length before them.
    Endless,
    /// These, and then the connection ends.
    Cut(Vec<u8>),
    Status(u16),
    Redirect(String),
}

#[derive(Clone, Debug)]
struct FakeFile {
    path: String,
    size: Option<u64>,
    given: Given,
}

#[derive(Default)]
struct State {
    files: HashMap<String, FakeFile>,
    downloads: usize,
    is_held: bool,
}

#[derive(Default)]
pub struct Files(watch::Sender<State>);

impl Files {
    /// A file, by the path that `getFile` names. `size`: what it says of it.
    pub fn put_at(&self, file_id: &str, path: &str, size: Option<u64>, given: Given) {
        let file = FakeFile {
            path: path.to_owned(),
            size,
            given,
        };
        self.0.send_modify(|state| {
            state.files.insert(file_id.to_owned(), file);
        });
    }

    pub fn put(&self, file_id: &str, bytes: &[u8]) {
        let given = Given::Whole(bytes.to_vec());
        let size = Some(bytes.len() as u64);
        self.put_at(file_id, &format!("files/{file_id}"), size, given);
    }

    /// Whether downloads wait.
    pub fn hold(&self, is_held: bool) {
        self.0.send_modify(|state| state.is_held = is_held);
    }

    /// Downloads that were begun.
    pub fn downloads(&self) -> usize {
        self.0.borrow().downloads
    }

    /// The result of `getFile`.
    pub(super) fn describe(&self, question: &Value) -> Option<Value> {
        let state = self.0.borrow();
        let file_id = question["file_id"].as_str()?;
        let file = state.files.get(file_id)?;
        let mut said = json!({"file_id": file_id, "file_path": file.path});
        if let Some(size) = file.size {
            said["file_size"] = size.into();
        }
        Some(said)
    }

    pub(super) async fn download(&self, path: &str) -> Response {
        self.0.send_modify(|state| state.downloads += 1);
        let mut state = self.0.subscribe();
        let freed = state.wait_for(|state| !state.is_held).await;
        let file = freed
            .unwrap()
            .files
            .values()
            .find(|file| file.path == path)
            .cloned();
        let Some(file) = file else {
            return StatusCode::NOT_FOUND.into_response();
        };
        match file.given {
            Given::Whole(bytes) => bytes.into_response(),
            Given::Endless => {
                let chunks = std::iter::repeat_with(|| Ok::<_, std::io::Error>(vec![7_u8; 1_024]));
                Body::from_stream(futures_util::stream::iter(chunks)).into_response()
            }
            Given::Cut(bytes) => {
                let chunks = [Ok(bytes), Err(std::io::Error::other("cut"))];
                Body::from_stream(futures_util::stream::iter(chunks)).into_response()
            }
            Given::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
            Given::Redirect(to) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
        }
    }
}
