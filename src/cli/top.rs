//! `lanekeeper top`: subscriptions, lanes and workers as they are, in a terminal, with the actions that operators need.
//!
//! | file | what it has |
//! |---|---|
//! | [`data`] | what is shown, read every second, and the actions on it |
//! | [`remote`] | the same through a worker's HTTP API |
//! | [`state`] | which rows are shown and selected, and what a key means: no terminal and no database |
//! | [`draw`] | the picture |
//!
//! Reading is bounded like `status`. Where Postgres is away the last picture stays and says since when; reading goes on
//! by itself when it is back. An action is on the lane as it was seen: a head that has moved on meanwhile is not skipped.

mod data;
mod draw;
mod remote;
mod state;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_config::Config;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use self::data::Source;
use self::state::{Request, State};
use super::Failure;

/// How often a key is waited for before the end of the program is looked at.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Watch subscriptions, lanes and workers, and act on them, in a terminal
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: tab and 1 2 3 choose the view, arrows the row, enter follows a lane's session, r retries its head now, s skips it,
p parks and u unparks the lane or pauses and resumes the subscription, q leaves. Skipping asks first.

Without a database, LANEKEEPER_URL names a worker and LANEKEEPER_TOKEN an access token with the scope `read`, and `operate`
to act.

Examples:
  lanekeeper top --interval 2
  LANEKEEPER_URL=https://lane.example lanekeeper top")]
pub struct Args {
    /// Seconds between two readings
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`top` needs a terminal: `lanekeeper status` prints once",
        ));
    }
    let mut source = Source::open(config).await?;
    let mut state = State::default();
    state.refresh(source.read(state.followed()).await);
    let terminal = ratatui::try_init().map_err(Failure::failed)?;
    let ended = show(
        terminal,
        &mut source,
        &mut state,
        Duration::from_secs(args.interval),
    )
    .await;
    ratatui::restore();
    ended.map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}

async fn show(
    mut terminal: DefaultTerminal,
    source: &mut Source,
    state: &mut State,
    every: Duration,
) -> std::io::Result<()> {
    let (keys, mut pressed) = mpsc::channel(64);
    // Ends when nobody takes its keys any more, or with the terminal.
    let reading = tokio::task::spawn_blocking(move || {
        while !keys.is_closed() {
            if event::poll(KEY_WAIT)? && keys.blocking_send(event::read()?).is_err() {
                break;
            }
        }
        Ok(())
    });
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        terminal.draw(|frame| draw::draw(frame, state))?;
        let request = tokio::select! {
            event = pressed.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => state.press(key),
                // Another size is drawn anew.
                Some(_) => Request::Nothing,
                None => return reading.await.map_err(std::io::Error::other)?,
            },
            _ = ticks.tick() => Request::Read,
        };
        match request {
            Request::Nothing => {}
            Request::Leave => return Ok(()),
            Request::Read => state.refresh(source.read(state.followed()).await),
            Request::Act(action) => {
                state.say(source.act(&action).await);
                state.refresh(source.read(state.followed()).await);
            }
        }
    }
}
