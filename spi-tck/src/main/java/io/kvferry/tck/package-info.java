// SPDX-License-Identifier: Apache-2.0
/// Contract tests for plugin authors: subclass [KvConnectorContract], [TransferBackendContract] or
/// [EcConnectorContract], name a provider and its options, and run it with JUnit; a connector that
/// is made of others also runs [KvCompositeContract], a command [CommandContract].
/// [ConnectorHarness] drives the two halves of a KV connector through the documented life cycle
/// without an engine, one step at a time.
@NullMarked
package io.kvferry.tck;

import org.jspecify.annotations.NullMarked;
