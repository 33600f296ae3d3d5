//! Servers that die, hang, change or refuse, and what once went wrong.

mod callbacks;
mod cluster_reports;
mod crashes;
mod departure;
mod discovery;
mod endurance;
mod left_behind;
mod matrix;
mod regression;
mod rejected;
mod reports;
mod resets;
mod waiting;
