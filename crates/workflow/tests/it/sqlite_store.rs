//! What only the SQLite store does.
