//! Files with parameters and their values, for `lctl set_param -F`.
//!
//! | a line | is of |
//! |---|---|
//! | `PARAM=VALUE` | a file that somebody has written; with `#` before it, it is a remark |
//! | `- PARAM=VALUE`, below the line `params:` | what the MGS keeps: `mgs.MGS.live.FSNAME` |
//! | `- { …, event: set_param, …, parameter: PARAM, value: VALUE }` | the field's `llog_print` |
//!
//! Other events of the field's are passed over.

use super::{EINVAL, Failure};

/// All that files say, one behind the other, as `PARAM=VALUE`. Nothing, if one cannot be read or
/// says something else.
pub(super) fn of_files(paths: &[String]) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let code = error.raw_os_error().and_then(|raw| u8::try_from(raw).ok());
            Failure { what: format!("cannot read '{path}': {error}"), code: code.unwrap_or(EINVAL) }
        })?;
        let wrong =
            |what| Failure { what: format!("'{path}', {what}; nothing was set"), code: EINVAL };
        all.extend(settings(&text).map_err(wrong)?);
    }
    Ok(all)
}

fn settings(text: &str) -> Result<Vec<String>, String> {
    let params = text.lines().position(|line| line.trim() == "params:");
    let begin = params.map_or(0, |at| at + 1);
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()).skip(begin) {
        let line = line.trim();
        let item = line.strip_prefix("- ").unwrap_or(line);
        if item.is_empty() || item.starts_with('#') {
            continue;
        }
        if let Some(record) = item.strip_prefix('{') {
            all.extend(setting_of(record));
            continue;
        }
        let setting = item.split_once('=').filter(|(name, _)| is_name(name));
        let (name, value) = setting
            .ok_or_else(|| format!("line {number}: '{line}' is not written as PARAM=VALUE"))?;
        all.push(format!("{name}={value}"));
    }
    Ok(all)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}

/// The setting of a record of the field's, if it is of one.
fn setting_of(record: &str) -> Option<String> {
    let behind = |key: &str| Some(record.split_once(key)?.1);
    let event = behind("event: ")?.split([',', ' ']).next()?;
    let name = behind(" parameter: ")?.split(", ").next()?;
    let value = behind(" value: ")?.trim_end().trim_end_matches('}').trim_end();
    (event == "set_param" && is_name(name)).then(|| format!("{name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn every_form_is_read() {
        let own = "# for the night\n\nosc.*.max_rpcs_in_flight=8\n  lod.*.qos_threshold_rr=20%\n";
        let kept = "mgs.MGS.live.fs=\nfsname: fs\nversion: 4\ntargets:\n- fs-OST0000 10.0.0.2@tcp\n\
                    params:\n- osc.*-OST0001*.active=0\n";
        let field = "- { index: 2, event: attach, device: fs-clilov, type: lov, UUID: fs-clilov }\n\
                     - { index: 7, event: set_param, device: general, parameter: osc.*.active, \
                     value: 1 }\n";
        let read = |text| settings(text).unwrap();
        assert_eq!(read(own), ["osc.*.max_rpcs_in_flight=8", "lod.*.qos_threshold_rr=20%"]);
        assert_eq!(read(kept), ["osc.*-OST0001*.active=0"]);
        assert_eq!(read(field), ["osc.*.active=1"]);
        assert!(read("params:\n").is_empty());
    }

    #[test]
    fn what_is_no_setting_is_named_and_nothing_is_set() {
        for (text, says) in [
            ("a=1\n\nb\n", "line 3: 'b' is not written as PARAM=VALUE"),
            ("=1\n", "line 1: '=1'"),
            ("some thing=1\n", "line 1: 'some thing=1'"),
            ("params:\n- a\n", "line 2: '- a'"),
        ] {
            let said = settings(text).unwrap_err();
            assert!(said.starts_with(says), "{said}");
        }
        let scratch = Scratch::new("settings");
        let [good, bad, none] =
            ["good", "bad", "none"].map(|name| scratch.path().join(name).display().to_string());
        std::fs::write(&good, "a=1\n").unwrap();
        std::fs::write(&bad, "a=1\nb\n").unwrap();
        assert_eq!(of_files(&[good.clone(), good.clone()]).ok(), Some(vec!["a=1".to_owned(); 2]));
        let failure = of_files(&[good.clone(), bad]).err().unwrap();
        assert!(failure.code == EINVAL && failure.what.ends_with("nothing was set"));
        let failure = of_files(&[good, none]).err().unwrap();
        assert!(failure.code == 2 && failure.what.starts_with("cannot read"), "{}", failure.what);
    }
}
