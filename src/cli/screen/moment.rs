//! Times as people read them in a table.

use jiff::tz::TimeZone;

use crate::model::Timestamp;

/// The clock for today, the day for this year, else the date.
pub fn short(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let local = |at: Timestamp| {
        let millis = i64::try_from(at.0).ok()?;
        Some(jiff::Timestamp::from_millisecond(millis).ok()?.to_zoned_datetime(zone.clone()))
    };
    let (Some(at), Some(now)) = (local(at), local(now)) else { return String::from("?") };
    let form = if at.date() == now.date() {
        "%H:%M:%S"
    } else if at.year() == now.year() {
        "%b %d %H:%M"
    } else {
        "%Y-%m-%d"
    };
    at.strftime(form).to_string()
}
