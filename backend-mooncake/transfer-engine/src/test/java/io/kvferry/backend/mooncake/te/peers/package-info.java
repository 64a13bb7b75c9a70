// SPDX-License-Identifier: Apache-2.0
/// What the engine's tests talk to: peers that follow a script, speak older forms of the protocol,
/// are real Mooncake, or live in a JVM of their own that can be killed.
package io.kvferry.backend.mooncake.te.peers;
