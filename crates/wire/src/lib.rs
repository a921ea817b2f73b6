//! DNS bytes and their meaning.
