// Package http delivers events to HTTP endpoints: the destination end of transaction → log → lanes → destination →
// outcome → settle. One event is one signed POST, and what comes back is mapped to one relay.Outcome.
//
// Reading order: config.go and destination.go hold a delivery together, attempt.go sends it. endpoint.go and table.go say
// where it goes, credential.go with which secrets, message.go what is sent, answers.go what an answer means, failure.go
// what it means that there is none, client.go and address.go how a connection is made, check.go what can be known before.
//
// What holds:
//
//   - Nothing is sent unsigned or without its token: a credential that is missing or empty makes the endpoint
//     Unavailable. Their files are looked at for every attempt, and read again when they are not what they were.
//   - No redirect is followed and nothing but 2xx is a success; a 2xx is one whatever its body is like.
//   - A request is sent once per attempt. There are three exceptions, each at most once: the connection had been idle
//     and ended before a byte came back; 421; 401 when the credential has changed meanwhile. Whatever may have arrived
//     twice is marked Uncertain.
//   - An address that is not public is refused when it is dialled, unless the configuration allows it.
//   - No secret gets into an outcome, an error or a log; nor do the query and the user of a URL.
package http
