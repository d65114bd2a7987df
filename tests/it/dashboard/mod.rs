//! The dashboard of a worker process, as a browser asks for it.

mod access;
mod actions;
mod away;
mod bounds;
mod browser;
mod dead;
mod desk;
mod forgery;
mod pages;
mod sign_in;
