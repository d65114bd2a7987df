//! What operators take, as far as it can be checked without their tools (scripts/check-deploy.sh has those):
//! names that must exist elsewhere, the health command, and what docs/deploy.md says of upgrades.

mod chart;
mod health;
mod installations;
mod monitoring;
mod settings;
mod upgrade;
