//! Sources: platforms' signed requests become messages to agents.

mod applying;
mod discord;
mod fixture;
mod gateway;
mod receiving;
mod slack;
mod strangers;
mod telegram;

/// Two kinds of signature. Fixtures of no platform.
const FILE: &str = r#"
[source.gh]
signature  = "github"
secret_env = "GH_SECRET"
session    = "gh-{/repository}"
content    = "{/comment/body}"
actor_id   = "{/sender}"
channel_id = "{/issue}"
max_bytes  = 2048

[source.std]
signature  = "standard"
secret_env = "STD_SECRET"
session    = "all"
content    = "{body}"
"#;
