//! What all targets share.
