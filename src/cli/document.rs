//! `lanekeeper document`: documents, each written together with its event.

mod change;
mod read;

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::document::DocumentError;

use super::Failure;

/// Read and change documents
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Get(read::GetArgs),
    Put(change::PutArgs),
    Patch(change::PatchArgs),
    Delete(change::DeleteArgs),
    History(read::HistoryArgs),
    List(read::ListArgs),
}

/// The name of a document.
#[derive(Debug, clap::Args)]
struct Name {
    /// The document's kind
    #[arg(value_name = "KIND")]
    kind: String,
    /// The document's id
    #[arg(value_name = "ID")]
    id: String,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Get(args) => read::get(args, config).await,
        Command::Put(args) => change::put(args, config).await,
        Command::Patch(args) => change::patch(args, config).await,
        Command::Delete(args) => change::delete(args, config).await,
        Command::History(args) => read::history(args, config).await,
        Command::List(args) => read::list(args, config).await,
    }
}

impl From<DocumentError> for Failure {
    fn from(error: DocumentError) -> Self {
        let advice = error.advice().map(str::to_owned);
        let failure = match error {
            DocumentError::Append(error) if error.is_outcome_unknown() => {
                return Self::later(error)
                    .advise("whether it was changed is not known: read the document");
            }
            DocumentError::Append(error) => return error.into(),
            refused => Self::failed(refused),
        };
        match advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}
