// SPDX-License-Identifier: Apache-2.0
/// Contract tests for plugin authors: subclass [io.kvferry.tck.kv.KvConnectorContract],
/// [io.kvferry.tck.transfer.TransferBackendContract] or [io.kvferry.tck.ec.EcConnectorContract],
/// name a provider and its options, and run it with JUnit; a connector that is made of others also
/// runs [io.kvferry.tck.kv.KvCompositeContract], a command
/// [io.kvferry.tck.command.CommandContract]. [io.kvferry.tck.harness.ConnectorHarness] drives the
/// two halves of a KV connector without an engine. This package has what those share.
@NullMarked
package io.kvferry.tck;

import org.jspecify.annotations.NullMarked;
