//! Dates as the original tools print them, in UTC: `Sun Nov 22 11:30:00 2026` (IOR) and
//! `11/22/2026 11:30:00` (mdtest).

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Year, month and day of a number of days since 1970 (Gregorian; by eras of 400 years that
/// begin in March, so that leap days come last).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn clock(seconds: u64) -> String {
    let of_day = seconds % 86_400;
    format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// As the C library's ctime: `Sun Nov 22 11:30:00 2026`.
pub fn ctime(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let name = |names: &'static [&'static str], at: u64| {
        usize::try_from(at).ok().and_then(|at| names.get(at)).copied().unwrap_or_default()
    };
    let weekday = name(&DAYS, (seconds / 86_400 + 4) % 7);
    format!("{weekday} {} {day:>2} {} {year}", name(&MONTHS, month - 1), clock(seconds))
}

/// As mdtest: `11/22/2026 11:30:00`.
pub fn american(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    format!("{month:02}/{day:02}/{year} {}", clock(seconds))
}

/// As IO500: `2026-11-22 11:30:00`.
pub fn iso(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02} {}", clock(seconds))
}

/// As IO500 names directories: `2026.11.22-11.30.00`.
pub fn stamp(seconds: u64) -> String {
    iso(seconds).replace(['-', ':'], ".").replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_forms_of_io500() {
        assert_eq!(iso(1_795_346_818), "2026-11-22 11:26:58");
        assert_eq!(stamp(951_782_400), "2000.02.29-00.00.00");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, both) in [
            (0, ("Thu Jan  1 00:00:00 1970", "01/01/1970 00:00:00")),
            (951_782_399, ("Mon Feb 28 23:59:59 2000", "02/28/2000 23:59:59")),
            (951_782_400, ("Tue Feb 29 00:00:00 2000", "02/29/2000 00:00:00")),
            (1_709_251_200, ("Fri Mar  1 00:00:00 2024", "03/01/2024 00:00:00")),
            (1_795_346_818, ("Sun Nov 22 11:26:58 2026", "11/22/2026 11:26:58")),
            (1_798_761_599, ("Thu Dec 31 23:59:59 2026", "12/31/2026 23:59:59")),
        ] {
            assert_eq!((ctime(seconds).as_str(), american(seconds).as_str()), both);
        }
    }
}
