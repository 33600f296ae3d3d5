//! Servers that die, hang, change or refuse, and what once went wrong.

mod callbacks;
mod crashes;
mod departure;
mod discovery;
mod endurance;
mod matrix;
mod regression;
mod rejected;
mod reports;
mod waiting;
