//! The two halves of `make demo` that are more than starting programs: feeding recorded hook calls
//! through `lanekeeper hook`, and comparing what arrived with what the database says.
//!
//! scripts/demo.sh runs them; see there for the whole.

mod feed;
mod verify;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
enum Step {
    /// Make every hook call of a folder of recordings
    Feed(feed::Args),
    /// Wait until everything that is due has arrived, and say what arrived
    Verify(verify::Args),
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    match Step::parse() {
        Step::Feed(args) => feed::run(args).await,
        Step::Verify(args) => verify::run(args).await,
    }
}
