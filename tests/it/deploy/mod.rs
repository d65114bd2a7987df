//! The files for operators, as far as they can be checked without the operators' tools (scripts/check-deploy.sh uses
//! those): names that must exist elsewhere, the health command, and the claims of docs/deploy.md about upgrades.

mod chart;
mod health;
mod installations;
mod monitoring;
mod package;
mod settings;
mod upgrade;
