// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

/// The contract of an encoder-cache connector as JUnit tests: one engine encodes and saves items,
/// another loads them. Subclass it, name the provider and its options, and where it applies how to
/// damage or stop the store. Claimed features must work; of features that are not claimed the tests
/// check that they never show.
public abstract class EcConnectorContract extends EcEngineTests {}
