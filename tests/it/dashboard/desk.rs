//! The fixture: a worker process with its dashboard, and somebody with a browser that keeps cookies and follows nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use url::form_urlencoded;

use crate::command::run;
use crate::process::plant::{LIMIT, Plant};
use crate::support::{WorkerProcess, wait_until};

pub(crate) struct Desk {
    pub(crate) plant: Plant,
    pub(crate) worker: WorkerProcess,
}

impl Desk {
    pub(crate) async fn open(variables: &[(&str, &str)]) -> Self {
        let plant = Plant::new(Duration::ZERO).await;
        let worker = plant.worker(variables).await;
        Self { plant, worker }
    }

    /// A token that `token create` makes with these arguments.
    pub(crate) async fn token(&self, arguments: &[&str]) -> String {
        token(&self.plant.url, arguments).await
    }

    /// Nobody yet.
    pub(crate) fn browser(&self) -> Browser {
        Browser::at(&self.worker)
    }

    /// Somebody who has signed in with a new token that has these scopes.
    pub(crate) async fn visitor(&self, scopes: &[&str]) -> Browser {
        let mut arguments = vec!["visitor"];
        for scope in scopes {
            arguments.extend(["--scope", scope]);
        }
        let token = self.token(&arguments).await;
        let mut browser = self.browser();
        assert_eq!(browser.sign_in(&token).await.status, 303);
        browser
    }

    /// Appends events with nothing in them, and waits until the first is blocked.
    pub(crate) async fn block(&self, session: &str, events: i64) -> i64 {
        self.plant.receiver.set_broken(true);
        for seq in 1..=events {
            self.append(session, "step", &format!("{{\"n\":{seq}}}"))
                .await;
        }
        wait_until(LIMIT, "its head has failed", async || {
            self.lane_text(session, "state").await == "blocked"
        })
        .await;
        self.plant
            .client
            .query_one(
                "SELECT lane_id FROM lanekeeper.lane_status WHERE session = $1 AND subscription = 'out'",
                &[&session],
            )
            .await
            .unwrap()
            .get(0)
    }

    pub(crate) async fn append(&self, session: &str, event_type: &str, payload: &str) {
        self.plant
            .client
            .execute(
                "SELECT lanekeeper.enqueue('runs', $1, $2, $3::text::jsonb)",
                &[&session, &event_type, &payload],
            )
            .await
            .unwrap();
    }

    /// A column of the session's lane, as text.
    pub(crate) async fn lane_text(&self, session: &str, column: &str) -> String {
        let statement = format!(
            "SELECT coalesce({column}::text, '') FROM lanekeeper.lane_status WHERE session = $1 AND subscription = 'out'"
        );
        let row = self.plant.client.query_one(&statement, &[&session]).await;
        row.unwrap().get(0)
    }

    /// Dead letters of one lane, whose events are all delivered; returns their ids.
    pub(crate) async fn dead_letters(&self, session: &str, count: i32) -> Vec<i64> {
        self.append(session, "step", "{}").await;
        self.plant.settled().await;
        let rows = self
            .plant
            .client
            .query(
                "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes, error)
                 SELECT l.lane_id, 1, gen_random_uuid(), 'step', '{\"n\":1}', now(), 10, 0, 'status 500: <b>no</b>'
                 FROM lanekeeper.lane AS l JOIN lanekeeper.session AS n ON n.session_id = l.session_id
                 JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
                 CROSS JOIN generate_series(1, $2::int) WHERE n.name = $1 AND s.name = 'out'
                 RETURNING dead_id",
                &[&session, &count],
            )
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// A token that `token create` makes with these arguments.
pub(crate) async fn token(url: &str, arguments: &[&str]) -> String {
    let arguments = [&["token", "create"], arguments].concat();
    let ran = run(&arguments, &[("DATABASE_URL", url)], "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout.trim().to_owned()
}

pub(crate) struct Browser {
    client: Client,
    base: String,
    pub(crate) cookies: BTreeMap<String, String>,
    /// Sent with every request.
    pub(crate) headers: Vec<(&'static str, String)>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) set_cookies: Vec<String>,
    headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Browser {
    pub(crate) fn at(worker: &WorkerProcess) -> Self {
        // Fails only where it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().redirect(Policy::none()).build();
        Self {
            client: client.unwrap(),
            base: worker.http(),
            cookies: BTreeMap::new(),
            headers: Vec::new(),
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let request = self.client.get(self.base.clone() + path);
        self.send(request).await
    }

    /// As it is, without what a form of ours carries.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let request = self
            .client
            .post(self.base.clone() + path)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        self.send(request).await
    }

    /// With what the forms of a page carry, which is read from `/`.
    pub(crate) async fn act(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let form = self.form().await;
        self.post(path, &[fields, &[("form", &form)]].concat())
            .await
    }

    /// The value that proves a form to be from a page of this visitor.
    pub(crate) async fn form(&mut self) -> String {
        let page = self.get("/").await;
        page.between("name=\"form\" value=\"", "\"").to_owned()
    }

    pub(crate) async fn sign_in(&mut self, token: &str) -> Answer {
        self.post("/sign-in", &[("token", token), ("next", "/")])
            .await
    }

    /// What an action came to, which the next page tells.
    pub(crate) async fn told(&mut self, answer: &Answer) -> String {
        assert_eq!(answer.status, 303, "{}", answer.body);
        let page = self.get(answer.location.as_deref().unwrap()).await;
        let text = page.between("class=\"notice", "</div>");
        text.split_once('>').unwrap().1.to_owned()
    }

    async fn send(&mut self, mut request: reqwest::RequestBuilder) -> Answer {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let answer = Answer::of(request.send().await.unwrap()).await;
        for set in &answer.set_cookies {
            let (name, rest) = set.split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            match set.contains("Max-Age=0;") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        answer
    }
}

impl Answer {
    async fn of(response: Response) -> Self {
        let headers = response.headers().clone();
        let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
        Self {
            status: response.status().as_u16(),
            location: headers.get("location").map(text),
            set_cookies: headers.get_all("set-cookie").iter().map(text).collect(),
            headers,
            body: response.text().await.unwrap(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The text between two others.
    pub(crate) fn between(&self, before: &str, after: &str) -> &str {
        let Some((_, rest)) = self.body.split_once(before) else {
            panic!("no {before:?} in {}", self.body);
        };
        rest.split_once(after).unwrap().0
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.body.contains(text)
    }

    /// It is a page with this text.
    pub(crate) fn assert_page(&self, status: u16, text: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert!(self.has(text), "no {text:?} in {}", self.body);
    }
}
