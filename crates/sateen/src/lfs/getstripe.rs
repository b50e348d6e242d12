//! `lfs getstripe`: the striping of files and directories, in the field's format.
//!
//! An object of ours is named by its file's FID and its stripe number: `objid` and `group`
//! are the FID's, and the stripe number stands where a FID has its version.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use sateen_types::{Component, Fid, Layout, Pattern, STRIPE_SIZE_DEFAULT, StripePolicy};

use super::{Failure, fid_of, striping};

/// The magic number of a plain layout, as `-v` shows it.
const LAYOUT_MAGIC: u32 = 0x0BD1_0BD0;

#[derive(Debug, Clone, Args)]
pub(super) struct GetStripeArgs {
    /// Show the stripe count.
    #[arg(short = 'c', long = "stripe-count")]
    count: bool,
    /// Show the stripe size.
    #[arg(short = 'S', long = "stripe-size")]
    size: bool,
    /// Show the index of the first OST.
    #[arg(short = 'i', long = "stripe-index")]
    index: bool,
    /// Show the objects only.
    #[arg(short = 'q', long = "quiet")]
    quiet: bool,
    /// Show the FID, too.
    #[arg(short = 'v', long = "verbose")]
    verbose: bool,
    /// Go into subdirectories.
    #[arg(short = 'r', long = "recursive")]
    recursive: bool,
    /// Show a directory itself, not what is in it.
    #[arg(short = 'd', long = "directory")]
    directory: bool,
    /// As YAML.
    #[arg(short = 'y', long = "yaml")]
    yaml: bool,
    /// Files and directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &GetStripeArgs) -> Vec<Failure> {
    let mut failures = Vec::new();
    for path in &args.paths {
        visit(args, path, 0, &mut failures);
    }
    failures
}

/// Shows a path; of a directory also what is in it, one level deep unless told otherwise.
fn visit(args: &GetStripeArgs, path: &Path, depth: u32, failures: &mut Vec<Failure>) {
    let striping = match striping(path) {
        Ok(striping) => striping,
        Err(failure) => return failures.push(failure),
    };
    let directory = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let shown = match (directory, striping) {
        (true, (_, policy)) => Ok(of_directory(args, path, policy)),
        (false, (Some(layout), _)) => fid_of(path).map(|fid| of_file(args, path, fid, &layout)),
        (false, (None, _)) => Ok(format!("{} has no stripe info\n", path.display())),
    };
    match shown {
        Ok(text) => print!("{text}"),
        Err(failure) => failures.push(failure),
    }
    if !directory || args.directory || (depth > 0 && !args.recursive) {
        return;
    }
    let failed = |error| Failure::io(format!("cannot read '{}'", path.display()), &error);
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return failures.push(failed(error)),
    };
    let device = std::fs::symlink_metadata(path).map(|meta| meta.dev()).ok();
    for entry in entries {
        match entry {
            // What is mounted below is another file system's.
            Ok(entry) if entry.metadata().map(|meta| meta.dev()).ok() == device => {
                visit(args, &entry.path(), depth + 1, failures);
            }
            Ok(_) => {}
            Err(error) => failures.push(failed(error)),
        }
    }
}

impl GetStripeArgs {
    /// The fields asked for one by one: count, size, index.
    fn chosen(&self) -> [bool; 3] {
        [self.count, self.size, self.index]
    }
}

/// Fields as lines with labels; one that was asked for alone, as its value.
fn fields(args: &GetStripeArgs, prefix: &str, end: &str, fields: [(&str, String); 3]) -> String {
    let chosen = args.chosen();
    let alone = chosen.iter().filter(|chosen| **chosen).count() == 1;
    let mut out = String::new();
    for ((label, value), _) in fields.into_iter().zip(chosen).filter(|(_, chosen)| *chosen) {
        if alone {
            let _ = writeln!(out, "{value}");
        } else {
            let _ = write!(out, "{prefix}{label:<15}{value}{end}");
        }
    }
    out
}

fn of_directory(args: &GetStripeArgs, path: &Path, policy: Option<StripePolicy>) -> String {
    let own = policy.unwrap_or(StripePolicy::DEFAULT);
    let count =
        if own.stripe_count == 0 { StripePolicy::DEFAULT.stripe_count } else { own.stripe_count };
    let size = if own.stripe_size == 0 { STRIPE_SIZE_DEFAULT } else { own.stripe_size };
    let offset = own.stripe_offset.map_or_else(|| "-1".to_owned(), |index| index.to_string());
    let values = [
        ("stripe_count:", count.to_string()),
        ("stripe_size:", size.to_string()),
        ("stripe_offset:", offset.clone()),
    ];
    if args.chosen().contains(&true) {
        let text = fields(args, "", " ", values);
        return if text.ends_with(' ') { format!("{}\n", text.trim_end()) } else { text };
    }
    let header = if args.directory || args.yaml || args.quiet {
        String::new()
    } else {
        format!("{}\n", path.display())
    };
    let pattern = Pattern::Raid0.name();
    format!(
        "{header}stripe_count:  {count} stripe_size:   {size} pattern:       {pattern} \
         stripe_offset: {offset}\n{}",
        if args.directory { "" } else { "\n" }
    )
}

fn of_file(args: &GetStripeArgs, path: &Path, fid: Fid, layout: &Layout) -> String {
    let Some(first) = layout.components.first() else {
        return format!("{} has no stripe info\n", path.display());
    };
    let count = first.osts.len();
    let offset = first.osts.first().map_or_else(|| "-1".to_owned(), u32::to_string);
    if args.chosen().contains(&true) {
        let values = [
            ("stripe_count:", count.to_string()),
            ("stripe_size:", first.stripe_size.to_string()),
            ("stripe_offset:", offset),
        ];
        let text = fields(args, "lmm_", "\n", values);
        let alone = args.chosen().iter().filter(|chosen| **chosen).count() == 1;
        return if alone { text } else { format!("{}\n{text}", path.display()) };
    }
    let mut out = String::new();
    if !args.quiet {
        if !args.yaml {
            let _ = writeln!(out, "{}", path.display());
        }
        if args.verbose {
            let _ = writeln!(out, "lmm_magic:         {LAYOUT_MAGIC:#010X}");
            let _ = writeln!(out, "lmm_seq:           {:#x}", fid.seq.0);
            let _ = writeln!(out, "lmm_object_id:     {:#x}", fid.oid);
            let _ = writeln!(out, "lmm_fid:           {fid}");
        }
        let _ = writeln!(out, "lmm_stripe_count:  {count}");
        let _ = writeln!(out, "lmm_stripe_size:   {}", first.stripe_size);
        let _ = writeln!(out, "lmm_pattern:       {}", first.pattern.name());
        let _ = writeln!(out, "lmm_layout_gen:    {}", layout.generation);
        let _ = writeln!(out, "lmm_stripe_offset: {offset}");
    }
    objects(args, &mut out, fid, first);
    out
}

fn objects(args: &GetStripeArgs, out: &mut String, fid: Fid, component: &Component) {
    let (seq, oid) = (fid.seq.0, fid.oid);
    if args.yaml {
        let _ = writeln!(out, "lmm_objects:");
    } else {
        let _ = writeln!(out, "\tobdidx\t\t objid\t\t objid\t\t group");
    }
    for (ost, stripe) in component.osts.iter().zip(component.stripe_base..) {
        let _ = if args.yaml {
            writeln!(
                out,
                "      - l_ost_idx: {ost}\n        l_fid:     {seq:#x}:{oid:#x}:{stripe:#x}"
            )
        } else {
            writeln!(out, "\t{ost:6}\t{oid:14}\t{oid:#13x}\t{seq:#14x}")
        };
    }
    if !args.yaml {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::Seq;

    fn args() -> GetStripeArgs {
        GetStripeArgs {
            count: false,
            size: false,
            index: false,
            quiet: false,
            verbose: false,
            recursive: false,
            directory: false,
            yaml: false,
            paths: Vec::new(),
        }
    }

    fn file(args: &GetStripeArgs) -> String {
        let layout = Layout::raid0(4 << 20, vec![1, 0]).unwrap();
        of_file(args, Path::new("/mnt/f"), Fid::new(Seq(0x2_8000_0401), 2), &layout)
    }

    #[test]
    fn files_look_as_in_the_field() {
        let text = "/mnt/f\nlmm_stripe_count:  2\nlmm_stripe_size:   4194304\n\
            lmm_pattern:       raid0\nlmm_layout_gen:    1\nlmm_stripe_offset: 1\n\
            \tobdidx\t\t objid\t\t objid\t\t group\n\
            \t     1\t             2\t          0x2\t   0x280000401\n\
            \t     0\t             2\t          0x2\t   0x280000401\n\n";
        assert_eq!(file(&args()), text);
        assert_eq!(file(&GetStripeArgs { count: true, ..args() }), "2\n");
        assert_eq!(file(&GetStripeArgs { size: true, ..args() }), "4194304\n");
        assert_eq!(file(&GetStripeArgs { index: true, ..args() }), "1\n");
        let two = file(&GetStripeArgs { count: true, index: true, ..args() });
        assert_eq!(two, "/mnt/f\nlmm_stripe_count:  2\nlmm_stripe_offset: 1\n");
        let quiet = file(&GetStripeArgs { quiet: true, ..args() });
        assert!(quiet.starts_with("\tobdidx") && quiet.lines().count() == 4, "{quiet}");
        let yaml = file(&GetStripeArgs { yaml: true, ..args() });
        assert!(yaml.contains("lmm_objects:\n      - l_ost_idx: 1\n        l_fid:     0x28"));
        let verbose = file(&GetStripeArgs { verbose: true, ..args() });
        assert!(verbose.contains("lmm_magic:         0x0BD10BD0\nlmm_seq:           0x280000401"));
    }

    #[test]
    fn directories_look_as_in_the_field() {
        let policy = StripePolicy { stripe_count: 1, stripe_size: 4 << 20, stripe_offset: None };
        let line =
            "stripe_count:  1 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1\n";
        let path = Path::new("/mnt");
        let alone = of_directory(&GetStripeArgs { directory: true, ..args() }, path, Some(policy));
        assert_eq!(alone, line);
        assert_eq!(of_directory(&args(), path, Some(policy)), format!("/mnt\n{line}\n"));
        let count = GetStripeArgs { count: true, ..args() };
        assert_eq!(of_directory(&count, path, Some(policy)), "1\n");
        assert_eq!(of_directory(&count, path, None), "-1\n");
    }
}
