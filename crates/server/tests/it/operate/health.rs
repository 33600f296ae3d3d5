//! Health and reflection, as gRPC clients see them.

use tonic::transport::Channel;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::{v1, v1alpha};

use crate::support::{Limits, Server, await_that, get};

fn service(name: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: name.to_owned(),
    }
}

pub(super) async fn check(channel: &Channel, name: &str) -> Result<ServingStatus, tonic::Code> {
    let answer = HealthClient::new(channel.clone())
        .check(service(name))
        .await;
    answer
        .map(|answer| answer.into_inner().status())
        .map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn services_have_the_health_that_the_reference_gives_them() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    assert_eq!(check(&channel, "").await, Ok(ServingStatus::Serving));
    assert_eq!(
        check(&channel, "ratelimit").await,
        Ok(ServingStatus::Serving)
    );
    assert_eq!(check(&channel, "other").await, Err(tonic::Code::NotFound));
    let answer = get(server.http(), "/healthcheck");
    assert_eq!((answer.status, answer.body.as_str()), (200, "OK"));
    assert_eq!(server.stat("ratelimit_server.Check.total_requests"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_domain_it_is_unhealthy_when_asked_to_be() {
    let empty = Limits::new("");
    std::fs::remove_file(empty.folder().join("limits.yaml")).unwrap();
    let server = Server::start_bare(&[
        ("RUNTIME_ROOT", empty.root()),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
    ]);
    let channel = server.channel().await;
    let mut watch = HealthClient::new(channel.clone())
        .watch(service("ratelimit"))
        .await
        .unwrap()
        .into_inner();
    let next = |message: Option<HealthCheckResponse>| message.unwrap().status();
    assert_eq!(
        next(watch.message().await.unwrap()),
        ServingStatus::NotServing
    );
    assert_eq!(check(&channel, "").await, Ok(ServingStatus::Serving));
    let answer = get(server.http(), "/healthcheck");
    let reason = "not healthy: no limits are loaded (HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED)\n";
    assert_eq!((answer.status, answer.body.as_str()), (500, reason));

    empty.write("limits.yaml", "domain: shop");
    assert_eq!(next(watch.message().await.unwrap()), ServingStatus::Serving);
    assert_eq!(get(server.http(), "/healthcheck").status, 200);
}

/// The parts of health that depend on settings: Redis, and a configuration. gRPC and HTTP say the same of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_part_of_health_turns_it_off_and_all_of_them_turn_it_on() {
    let (redis, empty) = (
        tidegate_pipeline::test_util::RedisServer::start().await,
        Limits::new(""),
    );
    std::fs::remove_file(empty.folder().join("limits.yaml")).unwrap();
    let url = redis.address().to_string();
    let settings = [
        ("RUNTIME_ROOT", empty.root()),
        ("REDIS_URL", url.as_str()),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true"),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
    ];
    let server = Server::start_bare(&settings);
    let channel = server.channel().await;
    let (no_redis, no_limits) = (
        "not healthy: redis does not answer PING (REDIS_HEALTH_CHECK_ACTIVE_CONNECTION)\n",
        "not healthy: no limits are loaded (HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED)\n",
    );
    let says = async |status: u16, body: &str| {
        await_that(body, || {
            let answer = get(server.http(), "/healthcheck");
            (answer.status, &*answer.body) == (status, body)
        });
        let expected = if status == 200 {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        assert_eq!(check(&channel, "ratelimit").await, Ok(expected), "{body}");
        assert_eq!(
            check(&channel, "").await,
            Ok(ServingStatus::Serving),
            "the process is there"
        );
    };
    says(500, no_limits).await;
    redis.pause();
    says(500, &format!("{no_redis}{no_limits}")).await;
    empty.write("limits.yaml", "domain: shop");
    says(500, no_redis).await;
    redis.resume();
    says(200, "OK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_open_watch_is_told_and_does_not_hold_up_the_end() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    let mut health = HealthClient::new(channel);
    let mut watch = health
        .watch(service("ratelimit"))
        .await
        .unwrap()
        .into_inner();
    let mut unknown = health.watch(service("other")).await.unwrap().into_inner();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    assert_eq!(
        unknown.message().await.unwrap().unwrap().status(),
        ServingStatus::ServiceUnknown
    );
    let asked = std::time::Instant::now();
    server.ask_to_stop();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    assert_eq!(watch.message().await.unwrap(), None);
    assert_eq!(unknown.message().await.unwrap(), None);
    tokio::task::spawn_blocking(move || server.stop())
        .await
        .unwrap();
    assert!(asked.elapsed().as_secs() < 5, "the drain timeout is 10 s");
}

/// What reflection, in its first version, answers to one question.
async fn reflected(
    channel: &Channel,
    question: v1::server_reflection_request::MessageRequest,
) -> v1::server_reflection_response::MessageResponse {
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    };
    let stream = client.server_reflection_info(once(request)).await;
    let answer = stream.unwrap().into_inner().message().await.unwrap();
    answer.unwrap().message_response.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reflection_lists_and_describes_the_services() {
    use v1::server_reflection_request::MessageRequest as Question;
    use v1::server_reflection_response::MessageResponse as Answer;
    const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
    let server = Server::start(&[]);
    let channel = server.channel().await;
    let answer = reflected(&channel, Question::ListServices(String::new())).await;
    let Answer::ListServicesResponse(list) = &answer else {
        panic!("{answer:?}")
    };
    let names: Vec<&str> = list.service.iter().map(|service| &*service.name).collect();
    let others = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ];
    for name in [&[SERVICE], &others[..]].concat() {
        assert!(names.contains(&name), "{names:?}");
    }
    let symbol = Question::FileContainingSymbol(SERVICE.to_owned());
    let answer = reflected(&channel, symbol).await;
    let Answer::FileDescriptorResponse(files) = &answer else {
        panic!("{answer:?}")
    };
    assert!(!files.file_descriptor_proto.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reflection_in_its_first_draft_lists_the_services() {
    use v1alpha::server_reflection_request::MessageRequest as Question;
    let server = Server::start(&[]);
    let channel = server.channel().await;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(Question::ListServices(String::new())),
    };
    let stream = client.server_reflection_info(once(request)).await;
    let answer = stream.unwrap().into_inner().message().await.unwrap();
    assert!(answer.is_some());
}

/// A stream of one message.
fn once<T: Clone + Send + 'static>(message: T) -> impl tonic::IntoStreamingRequest<Message = T> {
    tonic::codegen::tokio_stream::once(message)
}
