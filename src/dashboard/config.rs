//! Settings of the dashboard: keys under `dashboard`.

use std::time::Duration;

use lanekeeper_core::section;
use serde::{Deserialize, Serialize};

section! {
    /// The web pages of `worker` and `dev`, on the listener of `http.listen`.
    DashboardConfig {
        /// `on`; `read_only`, which offers and takes no action, whatever a token allows; or `off`.
        mode: DashboardMode = DashboardMode::On,
        /// Whether payloads, headers, prompts and notifications can be read there.
        payloads: bool = true,
        /// Where a trace is shown, with `{trace_id}` in it, such as `https://jaeger.example/trace/{trace_id}`; unset: trace
        /// ids are plain text.
        trace_url: Option<String> = None,
        /// How long a sign-in lasts. It never outlasts its token.
        sign_in_hours: u32 = 12,
        /// Whether browsers may send the cookie over HTTPS only. It is so anyway where a proxy says that it was asked over
        /// HTTPS (`X-Forwarded-Proto`).
        secure_cookie: bool = false,
    }
}

/// What the dashboard offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DashboardMode {
    On,
    ReadOnly,
    Off,
}

impl DashboardConfig {
    pub fn sign_in_lasts(&self) -> Duration {
        Duration::from_secs(u64::from(self.sign_in_hours) * 3_600)
    }
}
