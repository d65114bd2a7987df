//! docs/reference/settings.md, generated from the sections of the configuration.

use std::fmt::Write as _;

use lanekeeper_config::Config;

use super::{code, keep, page, table};

#[test]
fn the_page_of_the_settings_is_what_the_configuration_has() {
    let mut text = page(
        "Settings",
        "Every setting by its section in `lanekeeper.toml`. [Configuration](../operations.md#configuration) says where \
         settings come from and which source counts. A list is an array in the file, and text with commas in the \
         environment. A `…_FILE` variable names a file that holds the value.",
    );
    for section in Config::described() {
        write!(text, "\n## {}\n\n{}\n", section.name, section.about).unwrap();
        let rows = section.settings.iter().map(|setting| {
            let meaning = setting.meaning;
            assert!(meaning.ends_with('.'), "{}: {meaning:?}", setting.key);
            let variables: Vec<String> = setting.variables.iter().map(|name| code(name)).collect();
            [
                code(&setting.key),
                setting.default.as_deref().map_or(String::new(), code),
                setting.unit.to_owned(),
                meaning.to_owned(),
                variables.join(", "),
            ]
        });
        let list = table(["key", "default", "unit", "meaning", "environment"], rows);
        text.push_str(&list);
    }
    keep("settings", &text);
}
