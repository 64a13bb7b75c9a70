// SPDX-License-Identifier: Apache-2.0
/// vLLM's MooncakeConnector for JVM engines: a decoder asks a prefiller over the side channel, the
/// prefiller writes finished KV blocks straight into the decoder's memory with the Mooncake
/// transfer engine. Works between kvferry engines and with vLLM 0.33.0's own connector.
///
/// The scheduler half decides and writes plans; the worker half runs two services, each confined to
/// one thread. Here are the provider, the two halves and the rehearsal. They stand on the packages
/// below, each of which uses only packages further down:
///
/// - `prefill`, `decode`: the service of each role, which do not know each other
/// - `copy`: which bytes go where
/// - `common`: options, and the message between the halves
/// - `plane`: what moves the bytes, and the memory that is registered with it
/// - `bootstrap`: how decoders find prefillers
/// - `wire`: the messages between engines
@NullMarked
package io.kvferry.backend.mooncake.p2p;

import org.jspecify.annotations.NullMarked;
