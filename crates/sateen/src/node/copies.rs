//! How many bytes of files this process has copied itself, and where, as a parameter: `copies`.

use std::fmt::Write as _;

use sateen_types::{clear_copies, copies_are_counted, count_copies, write_copies};

use crate::params::{CLEAR, COPIES, Param, stats_text};

pub(super) fn param() -> Param<'static> {
    let shown = || {
        stats_text(|out| {
            writeln!(out, "{COPIES:<25} {}", u8::from(copies_are_counted()))?;
            write_copies(out)
        })
    };
    Param::shown(COPIES.to_owned(), shown).set_by(|value| {
        set(value);
        Ok(())
    })
}

/// The value was checked.
fn set(value: &str) {
    match value.trim() {
        CLEAR => clear_copies(),
        "0" => {
            count_copies(false);
            clear_copies();
        }
        _ => count_copies(true),
    }
}
