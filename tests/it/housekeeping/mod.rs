//! B7, E8, F7: maintenance removes old data, keeps what is needed, and no table grows over a year of use.

mod archive;
mod days;
mod member;
mod records;
mod rest;
mod restoring;
mod rounds;
mod workers;
