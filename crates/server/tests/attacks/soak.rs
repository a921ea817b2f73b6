//! All attacks at once.
