// SPDX-License-Identifier: Apache-2.0

package abi

// Features is the LIF feature mask (enum ionic_eth_hw_features) exchanged by
// LIF_SETATTR FEATURES.
type Features uint64

// LIF features.
const (
	FeatureVLANTxTag    Features = 1 << 0
	FeatureVLANRxStrip  Features = 1 << 1
	FeatureVLANRxFilter Features = 1 << 2
	FeatureRxHash       Features = 1 << 3
	FeatureRxCsum       Features = 1 << 4
	FeatureTxSG         Features = 1 << 5
	FeatureRxSG         Features = 1 << 6
	FeatureTxCsum       Features = 1 << 7
	FeatureTSO          Features = 1 << 8
	FeatureTSOIPv6      Features = 1 << 9
	FeatureTSOECN       Features = 1 << 10
	FeatureTSOGRE       Features = 1 << 11
	FeatureTSOGRECsum   Features = 1 << 12
	FeatureTSOIPXIP4    Features = 1 << 13
	FeatureTSOIPXIP6    Features = 1 << 14
	FeatureTSOUDP       Features = 1 << 15
	FeatureTSOUDPCsum   Features = 1 << 16
	FeatureTimestamp    Features = 1 << 20
)

// Capability bits of the LIF identity.
const (
	LIFCapEth  = 1 << 0
	LIFCapRDMA = 1 << 1
)

// QFeatures is the queue feature mask of Q_IDENTIFY and Q_INIT.
type QFeatures uint64

// Queue features.
const (
	QFeatureCQ       QFeatures = 1 << 0
	QFeatureSG       QFeatures = 1 << 1
	QFeatureEQ       QFeatures = 1 << 2
	QFeatureCMB      QFeatures = 1 << 3
	QFeature2XDesc   QFeatures = 1 << 4
	QFeature2XCQDesc QFeatures = 1 << 5
	QFeature2XSGDesc QFeatures = 1 << 6
	QFeature4XDesc   QFeatures = 1 << 7
	QFeature4XCQDesc QFeatures = 1 << 8
	QFeature4XSGDesc QFeatures = 1 << 9
	QFeatureExpDB    QFeatures = 1 << 10
	QFeatureHWStamp  QFeatures = 1 << 16
)

// RxMode is the receive mode of RX_MODE_SET (enum ionic_rx_mode).
type RxMode uint16

// Receive mode bits.
const (
	RxModeUnicast     RxMode = 0x01
	RxModeMulticast   RxMode = 0x02
	RxModeBroadcast   RxMode = 0x04
	RxModePromisc     RxMode = 0x08
	RxModeAllMulti    RxMode = 0x10
	RxModeRDMASniffer RxMode = 0x20
	RxModeAll                = RxModeUnicast | RxModeMulticast | RxModeBroadcast |
		RxModePromisc | RxModeAllMulti | RxModeRDMASniffer
)

// RSSTypes selects the packet types that receive-side scaling hashes
// (enum ionic_rss_hash_types).
type RSSTypes uint16

// RSS packet types.
const (
	RSSIPv4    RSSTypes = 1 << 0
	RSSIPv4TCP RSSTypes = 1 << 1
	RSSIPv4UDP RSSTypes = 1 << 2
	RSSIPv6    RSSTypes = 1 << 3
	RSSIPv6TCP RSSTypes = 1 << 4
	RSSIPv6UDP RSSTypes = 1 << 5
	RSSAll              = RSSIPv4 | RSSIPv4TCP | RSSIPv4UDP | RSSIPv6 | RSSIPv6TCP | RSSIPv6UDP
)

// RSSKeySize is the length of the Toeplitz key in bytes.
const RSSKeySize = 40
