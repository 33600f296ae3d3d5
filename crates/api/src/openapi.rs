//! The description of the API, for programs.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Written by hand, and tested against the routes: generated from types it would say less than the types' own documentation.
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

pub(crate) fn page() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::edge::route::ROUTES;

    #[test]
    fn every_route_is_described_with_its_role_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let text = operation["description"].as_str().unwrap();
                let role = text.rsplit_once("Role: ").map(|(_, role)| role.trim_end_matches('.').to_owned());
                described.insert((path.clone(), method.to_uppercase(), role));
            }
        }
        let role = |role| format!("{role:?}").to_lowercase();
        let routes = ROUTES.iter().map(|route| {
            let method = route.method.to_string();
            (route.template.to_owned(), method, route.role.map(role))
        });
        assert_eq!(routes.collect::<BTreeSet<_>>(), described);
    }
}
