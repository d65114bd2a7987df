//! B7, E8, F7: what is old goes, what is needed stays, and a year of use grows no table.

mod archive;
mod days;
mod records;
mod rest;
mod rounds;
mod workers;
