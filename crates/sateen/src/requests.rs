//! How the kernel's requests come: over what, and how large they may be. `--transport`,
//! `--max-request`, and the options of a mount that say so.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use sateen_fuse::{REQUEST_MAX, TransportChoice};
use sateen_types::units::{format_size, parse_size};

use crate::cli::RequestArgs;
use crate::refusal::{Outcome, Refusal};

/// The option of a mount for `--transport`.
const TRANSPORT: &str = "transport=";
/// The option of a mount for `--max-request`.
const MAX_REQUEST: &str = "max_request=";
/// What a transport is called.
const NAMES: [(&str, TransportChoice); 3] = [
    ("auto", TransportChoice::Auto),
    ("io_uring", TransportChoice::Uring),
    ("classic", TransportChoice::Classic),
];
/// A largest request is a number of these.
const PAGE_BYTES: u32 = 4096;
/// And no less than this, 128 KiB: an extended attribute is a request, too, and reading ahead would be of no
/// use.
const REQUEST_MIN: u32 = 128 << 10;

fn named(text: &str) -> Option<TransportChoice> {
    NAMES.into_iter().find(|(name, _)| *name == text).map(|(_, choice)| choice)
}

/// What `--transport` takes.
pub(crate) fn transports() -> impl TypedValueParser<Value = TransportChoice> {
    let names = PossibleValuesParser::new(NAMES.map(|(name, _)| name));
    // It is one of them.
    names.map(|text| named(&text).unwrap_or_default())
}

/// A largest request, as `4M`.
pub(crate) fn max_request(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).and_then(|bytes| u32::try_from(bytes).ok());
    let fits = |bytes: &u32| {
        (REQUEST_MIN..=REQUEST_MAX).contains(bytes) && bytes.is_multiple_of(PAGE_BYTES)
    };
    let limits = || {
        format!(
            "it is a multiple of 4K, from 128K up to {} (as 4M)",
            format_size(REQUEST_MAX.into())
        )
    };
    bytes.filter(fits).ok_or_else(limits)
}

impl RequestArgs {
    /// What a mount's options say; the last of each counts.
    ///
    /// # Errors
    /// Of one of them, if what follows is nothing that can be.
    pub(crate) fn of_mount<'a>(options: impl Iterator<Item = &'a str>) -> Outcome<RequestArgs> {
        let mut said = RequestArgs::default();
        for option in options {
            if let Some(text) = option.strip_prefix(TRANSPORT) {
                said.transport = named(text).ok_or_else(|| {
                    Refusal::new(
                        format!("{option:?} names no transport"),
                        "say transport=io_uring, transport=classic, or transport=auto for \
                         io_uring where the kernel has it",
                    )
                })?;
            } else if let Some(text) = option.strip_prefix(MAX_REQUEST) {
                said.max_request = Some(max_request(text).map_err(|limits| {
                    Refusal::new(format!("{option:?} says no size that a request can have"), limits)
                })?);
            }
        }
        Ok(said)
    }

    /// Whether it is an option of a mount that is about this.
    pub(crate) fn knows(option: &str) -> bool {
        option.starts_with(TRANSPORT) || option.starts_with(MAX_REQUEST)
    }

    /// The same as arguments of a command.
    pub(crate) fn to_args(self) -> Vec<String> {
        let mut args = Vec::new();
        if let Some((name, _)) = NAMES.into_iter().find(|(_, choice)| *choice == self.transport) {
            args.extend(["--transport".to_owned(), name.to_owned()]);
        }
        if let Some(bytes) = self.max_request {
            args.extend(["--max-request".to_owned(), bytes.to_string()]);
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounts_options_say_how_requests_come() {
        let of = |list: &'static str| RequestArgs::of_mount(list.split(','));
        assert_eq!(of("rw,noatime"), Ok(RequestArgs::default()));
        assert_eq!(of("transport=classic").unwrap().transport, TransportChoice::Classic);
        let said = of("transport=classic,max_request=2M,transport=io_uring,max_request=256k");
        let want = RequestArgs { transport: TransportChoice::Uring, max_request: Some(256 << 10) };
        assert_eq!(said, Ok(want), "the last counts");
        assert_eq!(want.to_args(), ["--transport", "io_uring", "--max-request", "262144"]);
        for bad in ["transport=", "transport=uring", "transport=Classic"] {
            let refused = of(bad).unwrap_err();
            assert!(refused.what.contains(bad), "{refused}");
            assert!(refused.to_string().contains("transport=io_uring"), "{refused}");
            assert!(RequestArgs::knows(bad));
        }
        for bad in [
            "", "0", "4k", "64k", "131071", "135000", "-4k", "17M", "16388k", "1G", "4Mi",
            "16777217",
        ] {
            let option = format!("max_request={bad}");
            let refused = RequestArgs::of_mount([option.as_str()].into_iter()).unwrap_err();
            assert!(refused.what.contains(&option), "{refused}");
            assert!(refused.to_string().contains("up to 16.0M"), "{refused}");
        }
        assert_eq!([max_request("128k"), max_request("16M")], [Ok(128 << 10), Ok(16 << 20)]);
        assert!(!RequestArgs::knows("transports") && !RequestArgs::knows("max_read=1"));
    }
}
