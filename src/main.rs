//! The binary: everything is in the library of the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    lanekeeper_cli::main()
}
