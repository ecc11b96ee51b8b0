//! Moments as text, always in UTC: the forms say `+0000` and `Z`.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Since 1970.
    nanos: i128,
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

impl Moment {
    pub(super) fn new(at: SystemTime) -> Self {
        let nanos = match at.duration_since(UNIX_EPOCH) {
            Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
        };
        let seconds = i64::try_from(nanos.div_euclid(SECOND)).unwrap_or(0);
        let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = date(days);
        let (hour, minute, second) = ((of_day / 3600) as u8, (of_day / 60 % 60) as u8, (of_day % 60) as u8);
        Self { nanos, year, month, day, hour, minute, second }
    }

    /// `01/Jan/2016:00:00:00 +0000`
    pub(super) fn common(&self, out: &mut Vec<u8>) {
        let Self { year, day, hour, minute, second, .. } = self;
        let month = MONTHS[usize::from(self.month) - 1];
        let _ = write!(out, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000");
    }

    /// `2016-01-01T00:00:00.123Z`; `digits` of the fraction, cut off, not rounded.
    pub(super) fn rfc3339(&self, digits: u32, out: &mut Vec<u8>) {
        let Self { year, month, day, hour, minute, second, .. } = self;
        let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if digits > 0 {
            let fraction = self.nanos.rem_euclid(SECOND) / 10i128.pow(9 - digits);
            let _ = write!(out, ".{fraction:0width$}", width = digits as usize);
        }
        out.push(b'Z');
    }

    /// `Jan  1 00:00:00`, as syslog had it before it had a year (RFC 3164).
    pub(super) fn syslog(&self, out: &mut Vec<u8>) {
        let Self { day, hour, minute, second, .. } = self;
        let month = MONTHS[usize::from(self.month) - 1];
        let _ = write!(out, "{month} {day:2} {hour:02}:{minute:02}:{second:02}");
    }

    /// Whole units of `10^-digits` seconds since 1970.
    pub(super) fn unix(&self, digits: u32, out: &mut Vec<u8>) {
        let _ = write!(out, "{}", self.nanos.div_euclid(10i128.pow(9 - digits)));
    }
}

/// Seconds with so many digits behind the point, cut off, not rounded.
pub(super) fn seconds(took: Duration, digits: u32, out: &mut Vec<u8>) {
    let fraction = u64::from(took.subsec_nanos()) / 10u64.pow(9 - digits);
    let _ = write!(out, "{}.{fraction:0width$}", took.as_secs(), width = digits as usize);
}

/// Year, month from 1, day from 1 of a day counted from 1970-01-01 in the Gregorian calendar. Years are counted from March
/// here, so that the leap day is the last of its year.
fn date(days: i64) -> (i64, u8, u8) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * from_march + 2) / 5 + 1) as u8;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 } as u8;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

const SECOND: i128 = 1_000_000_000;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn moments() {
        for (seconds, nanos, common, rfc3339) in [
            (0, 0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00.000Z"),
            (1_451_606_400, 123_456_789, "01/Jan/2016:00:00:00 +0000", "2016-01-01T00:00:00.123Z"),
            (1_456_703_999, 999_999_999, "28/Feb/2016:23:59:59 +0000", "2016-02-28T23:59:59.999Z"),
            (1_456_704_000, 0, "29/Feb/2016:00:00:00 +0000", "2016-02-29T00:00:00.000Z"),
            (4_107_542_399, 1, "28/Feb/2100:23:59:59 +0000", "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, 0, "01/Mar/2100:00:00:00 +0000", "2100-03-01T00:00:00.000Z"),
            (253_402_300_799, 0, "31/Dec/9999:23:59:59 +0000", "9999-12-31T23:59:59.000Z"),
        ] {
            let moment = Moment::new(UNIX_EPOCH + Duration::new(seconds, nanos));
            assert_eq!(text(|out| moment.common(out)), common);
            assert_eq!(text(|out| moment.rfc3339(3, out)), rfc3339);
        }
        let before = Moment::new(UNIX_EPOCH - Duration::from_millis(1500));
        assert_eq!(text(|out| before.rfc3339(3, out)), "1969-12-31T23:59:58.500Z");
        assert_eq!(text(|out| before.unix(3, out)), "-1500");
    }

    #[test]
    fn every_day_of_a_cycle_is_as_the_calendar_says() {
        for days in (-200_000..200_000).step_by(37) {
            let want = jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(days)).expect("in range");
            let want = (i64::from(want.year()), want.month() as u8, want.day() as u8);
            assert_eq!(date(days), want, "{days}");
        }
    }
}
