//! `lfs setstripe`: makes a file with the striping asked for, or sets the policy that new
//! files of a directory get.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{AtFlags, CWD, FileType, Mode, XattrFlags, lsetxattr, mknodat, unlinkat};
use rustix::io::Errno;
use sateen_mount::STRIPE_XATTR;
use sateen_types::StripePolicy;
use sateen_types::units::parse_size;
use sateen_wire::codec::Wire;

use super::{Failure, require_ours};

/// "Invalid argument".
const EINVAL: u8 = 22;
/// "File exists".
const EEXIST: u8 = 17;

#[derive(Debug, Clone, Args)]
pub(super) struct SetStripeArgs {
    /// Number of stripes; -1 for as many as there are OSTs, 0 for the default.
    #[arg(short = 'c', long = "stripe-count", value_name = "N", allow_negative_numbers = true)]
    count: Option<i32>,
    /// Bytes of a stripe, with K, M or G; a multiple of 64K, 0 for the default.
    #[arg(short = 'S', long = "stripe-size", value_name = "SIZE")]
    size: Option<String>,
    /// Index of the first OST; -1 to let the file system choose.
    #[arg(short = 'i', long = "stripe-index", value_name = "IDX", allow_negative_numbers = true)]
    index: Option<i32>,
    /// Take a directory's own striping away.
    #[arg(short = 'd', long = "delete", conflicts_with_all = ["count", "size", "index"])]
    delete: bool,
    /// Files that do not exist yet, or directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &SetStripeArgs) -> Vec<Failure> {
    let policy = match policy(args) {
        Ok(policy) => policy,
        Err(what) => return vec![Failure { what, code: EINVAL }],
    };
    let results = args.paths.iter().map(|path| set(path, &policy, args.delete));
    results.filter_map(Result::err).collect()
}

fn policy(args: &SetStripeArgs) -> Result<StripePolicy, String> {
    let size = match &args.size {
        None => 0,
        Some(text) => {
            parse_size(text).and_then(|size| u32::try_from(size).ok()).ok_or_else(|| {
                format!("bad stripe size '{text}': use a multiple of 64K below 4G, for instance 1M")
            })?
        }
    };
    let offset = match args.index {
        None | Some(-1) => None,
        Some(index) => Some(u32::try_from(index).map_err(|_| {
            format!("bad stripe offset '{index}': use the index of an OST (see: lfs df), or -1")
        })?),
    };
    let policy = StripePolicy {
        stripe_count: args.count.unwrap_or(0),
        stripe_size: size,
        stripe_offset: offset,
    };
    policy.check().map_err(|error| format!("bad striping: {error}"))?;
    Ok(policy)
}

fn set(path: &Path, policy: &StripePolicy, delete: bool) -> Result<(), Failure> {
    let shown = path.display();
    let failed =
        |errno: Errno| Failure::io(format!("setstripe error for '{shown}'"), &errno.into());
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => {
            require_ours(path)?;
            put(path, policy).map_err(|errno| explain(path, errno))
        }
        Ok(_) => {
            require_ours(path)?;
            let what = format!("setstripe error for '{shown}': stripe already set");
            Err(Failure { what, code: EEXIST })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !delete => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            require_ours(parent.unwrap_or(Path::new(".")))?;
            // Not opened: the first open for writing settles the striping.
            let mode = Mode::from_raw_mode(0o644);
            mknodat(CWD, path, FileType::RegularFile, mode, 0).map_err(failed)?;
            put(path, policy).map_err(|errno| {
                // The name was new a moment ago, so it is ours to take away again.
                let _ = unlinkat(CWD, path, AtFlags::empty());
                explain(path, errno)
            })
        }
        Err(error) => Err(Failure::io(format!("cannot open '{shown}'"), &error)),
    }
}

fn put(path: &Path, policy: &StripePolicy) -> Result<(), Errno> {
    lsetxattr(path, STRIPE_XATTR, &policy.to_vec(), XattrFlags::empty())
}

fn explain(path: &Path, errno: Errno) -> Failure {
    let shown = path.display();
    match errno {
        Errno::INVAL => Failure {
            what: format!(
                "setstripe error for '{shown}': Invalid argument: is there such an OST? (see: lfs df)"
            ),
            code: EINVAL,
        },
        Errno::EXIST => Failure {
            what: format!("setstripe error for '{shown}': stripe already set"),
            code: EEXIST,
        },
        other => Failure::io(format!("setstripe error for '{shown}'"), &other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(count: Option<i32>, size: Option<&str>, index: Option<i32>) -> SetStripeArgs {
        let size = size.map(str::to_owned);
        SetStripeArgs { count, size, index, delete: false, paths: Vec::new() }
    }

    #[test]
    fn what_can_be_asked_for() {
        let some = policy(&args(Some(-1), Some("4M"), Some(2))).unwrap();
        let asked = StripePolicy { stripe_count: -1, stripe_size: 4 << 20, stripe_offset: Some(2) };
        assert_eq!(some, asked);
        assert_eq!(policy(&args(None, None, Some(-1))).unwrap().stripe_offset, None);
        for bad in ["1k", "x", "4G", "100000"] {
            assert!(policy(&args(None, Some(bad), None)).unwrap_err().contains("64"), "{bad}");
        }
        assert!(policy(&args(Some(-2), None, None)).unwrap_err().contains("stripe count"));
        assert!(policy(&args(Some(2001), None, None)).is_err());
        assert!(policy(&args(None, None, Some(-5))).unwrap_err().contains("lfs df"));
    }
}
