// SPDX-License-Identifier: Apache-2.0
/// The contract of a KV connector as JUnit tests: subclass [io.kvferry.tck.kv.KvConnectorContract];
/// a connector that is made of others also [io.kvferry.tck.kv.KvCompositeContract].
@NullMarked
package io.kvferry.tck.kv;

import org.jspecify.annotations.NullMarked;
