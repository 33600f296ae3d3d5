//! Converts the messages of a response to resources.

use prost::Message as _;
use prost_types::Any;
use prost_types::value::Kind;
use serde_json::{Map, Number, Value as Json};
use tidegate_ratelimit::{Resource, ResourceDescriptor, ResourceLimit};

use super::proto::envoy::service::discovery::v3::DiscoveryResponse;
use super::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use crate::base::text::quoted;

/// The type of the resources.
pub(crate) const TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Returns all resources of a response.
///
/// # Errors
/// The first invalid resource, described for the operator of the management server.
pub(super) fn resources(response: DiscoveryResponse) -> Result<Vec<Resource>, String> {
    let DiscoveryResponse {
        type_url,
        resources,
        ..
    } = response;
    if type_url != TYPE {
        return Err(format!(
            "the response is of type '{}', expected {TYPE}",
            shortened(&type_url)
        ));
    }
    resources
        .into_iter()
        .enumerate()
        .map(|(index, any)| resource(index, any))
        .collect()
}

fn resource(index: usize, any: Any) -> Result<Resource, String> {
    if any.type_url != TYPE {
        return Err(format!(
            "resource {index} is of type '{}', expected {TYPE}",
            shortened(&any.type_url)
        ));
    }
    let config = RateLimitConfig::decode(&*any.value)
        .map_err(|error| format!("resource {index} cannot be decoded: {error}"))?;
    let RateLimitConfig {
        name,
        domain,
        descriptors,
    } = config;
    let descriptors = descriptors
        .into_iter()
        .map(descriptor)
        .collect::<Result<_, _>>();
    let descriptors = descriptors
        .map_err(|reason| format!("{}: error parsing metadata: {reason}", shortened(&name)))?;
    Ok(Resource {
        name,
        domain,
        descriptors,
    })
}

fn descriptor(message: RateLimitDescriptor) -> Result<ResourceDescriptor, String> {
    Ok(ResourceDescriptor {
        key: message.key,
        value: message.value,
        rate_limit: message.rate_limit.map(limit),
        descriptors: message
            .descriptors
            .into_iter()
            .map(descriptor)
            .collect::<Result<_, _>>()?,
        shadow_mode: message.shadow_mode,
        quota_mode: message.quota_mode,
        detailed_metric: message.detailed_metric,
        metadata: message.metadata.map_or_else(|| Ok(Map::new()), map)?,
    })
}

fn limit(message: RateLimitPolicy) -> ResourceLimit {
    // An unknown unit has its number as its name, as in Go.
    let unit = RateLimitUnit::try_from(message.unit).map_or_else(
        |_| message.unit.to_string(),
        |unit| unit.as_str_name().to_owned(),
    );
    ResourceLimit {
        unit,
        requests_per_unit: message.requests_per_unit,
        unlimited: message.unlimited,
        name: message.name,
        replaces: message
            .replaces
            .into_iter()
            .map(|replaced| replaced.name)
            .collect(),
    }
}

fn map(message: prost_types::Struct) -> Result<Map<String, Json>, String> {
    message
        .fields
        .into_iter()
        .map(|(name, value)| Ok((name, json(value)?)))
        .collect()
}

fn json(message: prost_types::Value) -> Result<Json, String> {
    Ok(match message.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(value)) => Json::Bool(value),
        Some(Kind::StringValue(text)) => Json::String(text),
        Some(Kind::NumberValue(value)) => Json::Number(
            Number::from_f64(value).ok_or_else(|| format!("{value} is not a finite number"))?,
        ),
        Some(Kind::StructValue(value)) => Json::Object(map(value)?),
        Some(Kind::ListValue(list)) => Json::Array(
            list.values
                .into_iter()
                .map(json)
                .collect::<Result<_, _>>()?,
        ),
    })
}

/// Shortens a name that a server chose, for messages to people.
pub(super) fn shortened(text: &str) -> String {
    quoted(text, 200)
}
