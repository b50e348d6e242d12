//! `lfs setstripe`: makes files with the striping asked for, or sets the policy that new files
//! of directories get. What is not said comes from the directory above.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{AtFlags, CWD, FileType, Mode, XattrFlags, mknodat, unlinkat};
use rustix::io::Errno;
use sateen_mount::{OSTS_XATTR, STRIPE_XATTR};
use sateen_types::units::parse_size;
use sateen_types::{OST_INDEX_MAX, STRIPE_COUNT_MAX, StripePolicy};
use sateen_wire::codec::Wire;

use super::{Failure, require_ours};

/// "Invalid argument".
const EINVAL: u8 = 22;
/// "File exists".
const EEXIST: u8 = 17;
/// "Operation not permitted".
const EPERM: u8 = 1;

#[derive(Debug, Clone, Default, Args)]
pub(super) struct SetStripeArgs {
    /// Number of stripes; -1 for as many as there are OSTs, 0 for the default.
    #[arg(short = 'c', long = "stripe-count", value_name = "N", allow_negative_numbers = true)]
    count: Option<String>,
    /// Bytes of a stripe, with K, M or G; a multiple of 64K, 0 for the default.
    #[arg(short = 'S', long = "stripe-size", value_name = "SIZE")]
    size: Option<String>,
    /// Index of the first OST; -1 to let the file system choose.
    #[arg(
        short = 'i',
        long = "stripe-index",
        alias = "stripe-offset",
        value_name = "IDX",
        allow_negative_numbers = true
    )]
    index: Option<String>,
    /// The OST of each stripe of a new file, or of new files of a directory, as 0,2 or 0-3; with
    /// -i it begins there.
    #[arg(short = 'o', long = "ost", visible_alias = "ost-list", value_name = "IDX,..")]
    osts: Option<String>,
    /// Take a directory's own striping away.
    #[arg(short = 'd', long = "delete", conflicts_with_all = ["count", "size", "index", "osts"])]
    delete: bool,
    /// Files that do not exist yet, or directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    /// Let the MDT choose by this.
    Policy(StripePolicy),
    /// These OSTs, with stripes of this size.
    Osts(u32, Vec<u32>),
    /// A directory's own policy goes.
    Nothing,
}

pub(super) fn run(args: &SetStripeArgs) -> Vec<Failure> {
    let wish = match wish(args) {
        Ok(wish) => wish,
        Err(what) => return vec![Failure { what, code: EINVAL }],
    };
    let results = args.paths.iter().map(|path| set(path, &wish));
    results.filter_map(Result::err).collect()
}

pub(crate) fn count_of(text: &str) -> Result<i32, String> {
    let good = |count: &i32| (-1..=STRIPE_COUNT_MAX as i32).contains(count);
    text.parse().ok().filter(good).ok_or_else(|| {
        format!(
            "bad stripe count '{text}': use 1 to {STRIPE_COUNT_MAX}, -1 for all OSTs, or 0 for the \
             default"
        )
    })
}

pub(crate) fn size_of(text: &str) -> Result<u32, String> {
    let policy = |stripe_size| StripePolicy { stripe_size, ..StripePolicy::DEFAULT };
    let good = |size: &u32| policy(*size).check().is_ok();
    parse_size(text).and_then(|size| u32::try_from(size).ok()).filter(good).ok_or_else(|| {
        format!("bad stripe size '{text}': use a multiple of 64K below 4G, for instance 1M")
    })
}

fn index_of(text: &str) -> Result<Option<u32>, String> {
    match text.parse() {
        Ok(-1) => Ok(None),
        Ok(index) if (0..=i64::from(OST_INDEX_MAX)).contains(&index) => Ok(Some(index as u32)),
        _ => Err(format!(
            "bad stripe offset '{text}': use the index of an OST (see: lfs osts), or -1"
        )),
    }
}

/// `0,2-4`: indices, each once.
fn osts_of(text: &str) -> Result<Vec<u32>, String> {
    let bad =
        |why: &str| format!("bad OST list '{text}': {why}; use indices like 0,2-4 (see: lfs osts)");
    let mut osts = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Ok(from), Ok(to)) = (from.trim().parse::<u32>(), to.trim().parse::<u32>()) else {
            return Err(bad(&format!("'{part}' is no index")));
        };
        if from > to || to > OST_INDEX_MAX {
            return Err(bad(&format!("'{part}' is no range up to {OST_INDEX_MAX}")));
        }
        for index in from..=to {
            if osts.contains(&index) {
                return Err(bad(&format!("{index} stands there twice")));
            }
            osts.push(index);
            if osts.len() > STRIPE_COUNT_MAX as usize {
                return Err(bad(&format!("a file has at most {STRIPE_COUNT_MAX} stripes")));
            }
        }
    }
    Ok(osts)
}

fn wish(args: &SetStripeArgs) -> Result<Wish, String> {
    if args.delete {
        return Ok(Wish::Nothing);
    }
    let count = args.count.as_deref().map_or(Ok(0), count_of)?;
    let size = args.size.as_deref().map_or(Ok(0), size_of)?;
    let index = args.index.as_deref().map_or(Ok(None), index_of)?;
    let Some(list) = &args.osts else {
        let policy = StripePolicy { stripe_count: count, stripe_size: size, stripe_offset: index };
        policy.check().map_err(|error| format!("bad striping: {error}"))?;
        return Ok(Wish::Policy(policy));
    };
    let mut osts = osts_of(list)?;
    if count > 0 && count as usize != osts.len() {
        return Err(format!(
            "stripe count {count} does not fit OST list '{list}': leave -c out, or name as many OSTs"
        ));
    }
    if let Some(index) = index {
        let at = osts.iter().position(|ost| *ost == index);
        let at = at.ok_or_else(|| format!("stripe offset {index} is not in OST list '{list}'"))?;
        osts.rotate_left(at);
    }
    Ok(Wish::Osts(size, osts))
}

fn set(path: &Path, wish: &Wish) -> Result<(), Failure> {
    let shown = path.display();
    let failed =
        |errno: Errno| Failure::io(format!("setstripe error for '{shown}'"), &errno.into());
    let refused =
        |why: &str, code| Failure { what: format!("setstripe error for '{shown}': {why}"), code };
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            require_ours(path)?;
            put(path, wish).map_err(|errno| explain(path, errno))
        }
        Ok(_) => {
            require_ours(path)?;
            if *wish == Wish::Nothing {
                let why = "-d is for directories; a file keeps its striping";
                return Err(refused(why, EINVAL));
            }
            // Its MDT knows whether it was ever written.
            put(path, wish).map_err(|errno| explain(path, errno))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && *wish != Wish::Nothing => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            require_ours(parent.unwrap_or(Path::new(".")))?;
            // Not opened: the first open for writing settles the striping.
            let mode = Mode::from_raw_mode(0o644);
            mknodat(CWD, path, FileType::RegularFile, mode, 0).map_err(failed)?;
            put(path, wish).map_err(|errno| {
                // The name was new a moment ago, so it is ours to take away again.
                let _ = unlinkat(CWD, path, AtFlags::empty());
                explain(path, errno)
            })
        }
        Err(error) => Err(Failure::io(format!("cannot open '{shown}'"), &error)),
    }
}

fn put(path: &Path, wish: &Wish) -> Result<(), Errno> {
    let nothing = StripePolicy { stripe_count: 0, stripe_size: 0, stripe_offset: None };
    let (name, value) = match wish {
        Wish::Policy(policy) => (STRIPE_XATTR, policy.to_vec()),
        Wish::Nothing => (STRIPE_XATTR, nothing.to_vec()),
        Wish::Osts(size, osts) => {
            let mut value = size.to_vec();
            osts.put(&mut value);
            (OSTS_XATTR, value)
        }
    };
    rustix::fs::setxattr(path, name, &value, XattrFlags::empty())
}

fn explain(path: &Path, errno: Errno) -> Failure {
    let shown = path.display();
    let holds = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir());
    match errno {
        Errno::INVAL if path.exists() && !holds => Failure {
            what: format!(
                "setstripe error for '{shown}': Invalid argument: it is neither a file nor a \
                 directory, and has no data to be striped"
            ),
            code: EINVAL,
        },
        Errno::INVAL => Failure {
            what: format!(
                "setstripe error for '{shown}': Invalid argument: is there such an OST, and is it \
                 active? (see: lfs osts)"
            ),
            code: EINVAL,
        },
        Errno::EXIST => Failure {
            what: format!("setstripe error for '{shown}': stripe already set"),
            code: EEXIST,
        },
        Errno::PERM => Failure {
            what: format!(
                "setstripe error for '{shown}': Operation not permitted: only its owner and root \
                 may set it; make a folder of your own and set it there"
            ),
            code: EPERM,
        },
        other => Failure::io(format!("setstripe error for '{shown}'"), &other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(count: Option<&str>, size: Option<&str>, index: Option<&str>) -> SetStripeArgs {
        let [count, size, index] = [count, size, index].map(|text| text.map(str::to_owned));
        SetStripeArgs { count, size, index, ..SetStripeArgs::default() }
    }

    fn refused(args: &SetStripeArgs) -> String {
        wish(args).unwrap_err()
    }

    #[test]
    fn what_can_be_asked_for() {
        let some = wish(&args(Some("-1"), Some("4M"), Some("2"))).unwrap();
        let asked = StripePolicy { stripe_count: -1, stripe_size: 4 << 20, stripe_offset: Some(2) };
        assert_eq!(some, Wish::Policy(asked));
        let free = wish(&args(None, None, Some("-1"))).unwrap();
        assert_eq!(
            free,
            Wish::Policy(StripePolicy { stripe_count: 0, stripe_size: 0, stripe_offset: None })
        );
        for bad in ["1k", "x", "4G", "100000", "-1"] {
            assert!(refused(&args(None, Some(bad), None)).contains("64K"), "{bad}");
        }
        for bad in ["-2", "2001", "two", "99999999999"] {
            assert!(refused(&args(Some(bad), None, None)).contains("1 to 2000"), "{bad}");
        }
        for bad in ["-5", "x", "70000"] {
            assert!(refused(&args(None, None, Some(bad))).contains("lfs osts"), "{bad}");
        }
    }

    #[test]
    fn osts_can_be_named_one_by_one() {
        let list =
            |osts: &str, rest: SetStripeArgs| SetStripeArgs { osts: Some(osts.to_owned()), ..rest };
        let none = || args(None, None, None);
        let wished = |args| wish(&args).unwrap();
        assert_eq!(wished(list("3,0-1", none())), Wish::Osts(0, vec![3, 0, 1]));
        let at = list("0-3", args(Some("4"), Some("64K"), Some("2")));
        assert_eq!(wished(at), Wish::Osts(65536, vec![2, 3, 0, 1]));
        for bad in ["", "x", "1,1", "3-1", "0-70000", "0-2000"] {
            assert!(refused(&list(bad, none())).contains("bad OST list"), "{bad}");
        }
        assert!(refused(&list("0,1", args(Some("3"), None, None))).contains("does not fit"));
        assert!(refused(&list("0,1", args(None, None, Some("2")))).contains("not in OST list"));
    }
}
