// SPDX-License-Identifier: Apache-2.0
/// vLLM's MooncakeConnector for JVM engines: a decoder asks a prefiller over the side channel, the
/// prefiller writes finished KV blocks straight into the decoder's memory with the Mooncake
/// transfer engine. Works between kvferry engines and with vLLM 0.33.0's own connector.
///
/// The scheduler half decides and writes plans; the worker half runs two services, each confined to
/// one thread: the prefill service (who waits for which transfer, pushes) and the decode service
/// (who fetches what from where).
@NullMarked
package io.kvferry.backend.mooncake.p2p;

import org.jspecify.annotations.NullMarked;
