// SPDX-License-Identifier: Apache-2.0

package eth

import "github.com/ernic-dev/ernic/device/ionic/abi"

// supportedOffloads are the features this package implements. What a LIF
// grants is Config.Offload; without any of them the guest hands down linear
// frames and is handed plain ones.
const supportedOffloads = abi.FeatureVLANTxTag | abi.FeatureVLANRxStrip | abi.FeatureVLANRxFilter |
	abi.FeatureRxHash | abi.FeatureRxCsum | abi.FeatureTxSG | abi.FeatureTxCsum |
	abi.FeatureTSO | abi.FeatureTSOIPv6 | abi.FeatureTSOECN

// AllOffloads is every feature a LIF can grant.
const AllOffloads = supportedOffloads
