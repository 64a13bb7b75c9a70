// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import io.kvferry.spi.Plugin;

/// A provider that can be selected.
///
/// @param name the name it gave when it was found
/// @param where the jar or folder of classes that it was loaded from
/// @param folder the sub-folder of the plugin folder that it belongs to; empty for the class path
public record FoundPlugin<P extends Plugin>(String name, P provider, String where, String folder) {}
