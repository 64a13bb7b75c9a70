// SPDX-License-Identifier: Apache-2.0
/// The contract of an encoder-cache connector as JUnit tests: subclass
/// [io.kvferry.tck.ec.EcConnectorContract]. [io.kvferry.tck.ec.EcHarness] drives the halves without
/// an engine.
@NullMarked
package io.kvferry.tck.ec;

import org.jspecify.annotations.NullMarked;
